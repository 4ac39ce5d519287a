//! MD5 (RFC 1321), which PostgreSQL has as a function; nothing here relies on it.

use std::f64::consts::PI;
use std::fmt::Write;

/// What the number before lacks of the circle's.
const PI_REST: f64 = 1.224_646_799_147_353_2e-16;

/// How far each of four steps turns, for each of the four rounds.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest of some bytes, in hexadecimal.
pub fn md5_hex(bytes: &[u8]) -> String {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let constants = constants();
    padded.chunks_exact(64).for_each(|block| add_block(&mut state, block, &constants));
    state.iter().flat_map(|word: &u32| word.to_le_bytes()).fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// 2^32 times the sine of 1 to 64, from its series: sums and products are the same on all hosts, a library's sine may
/// not be.
fn constants() -> [u32; 64] {
    std::array::from_fn(|at| {
        // Within half a turn of zero, where the series is exact enough.
        let turns = ((at + 1) as f64 / PI).round();
        let angle = (at + 1) as f64 - turns * PI - turns * PI_REST;
        let (mut sum, mut term) = (0.0, angle);
        for step in 1..15 {
            sum += term;
            term *= -angle * angle / f64::from(2 * step * (2 * step + 1));
        }
        (sum.abs() * 4_294_967_296.0) as u32
    })
}

fn add_block(state: &mut [u32; 4], block: &[u8], constants: &[u32; 64]) {
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| block[at * 4 + byte]));
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mixed, at) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(constants[step]).wrapping_add(word(at));
        let turned = b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4]));
        (a, d, c, b) = (d, c, b, turned);
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}
