//! Random text, numbers and dates of the population, each a function of the seed, the table and the key.

use wire::{SplitMix64, mix};

/// The generator of one row, so that a row can be made again without those before it.
pub fn of_row(seed: u64, table: u64, key: i64) -> SplitMix64 {
    SplitMix64::new(mix(seed ^ mix(table << 48 ^ key as u64)))
}

/// A number from `low` to `high`, both included.
pub fn number(random: &mut SplitMix64, low: i64, high: i64) -> i64 {
    low + random.below((high - low + 1) as u64) as i64
}

/// Capital letters, from `low` to `high` of them. Only letters: no order of text by language can sort them otherwise
/// than by bytes.
pub fn letters(random: &mut SplitMix64, low: i64, high: i64) -> String {
    let length = number(random, low, high);
    (0..length).map(|_| char::from(b'A' + random.below(26) as u8)).collect()
}

/// Digits, from `low` to `high` of them.
pub fn digits(random: &mut SplitMix64, low: i64, high: i64) -> String {
    let length = number(random, low, high);
    (0..length).map(|_| char::from(b'0' + random.below(10) as u8)).collect()
}

/// A date between the years, both included, as ISO 8601 has it: its text sorts as it does.
pub fn date(random: &mut SplitMix64, first: i64, last: i64) -> String {
    let (year, month, day) = (number(random, first, last), number(random, 1, 12), number(random, 1, 28));
    format!("{year:04}-{month:02}-{day:02}")
}

/// The user name of a customer: a syllable per digit, as the specification's DIGSYL.
pub fn syllables(number: i64) -> String {
    const SYLLABLES: [&str; 10] = ["BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"];
    number.to_string().bytes().map(|digit| SYLLABLES[usize::from(digit - b'0')]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_function_of_seed_table_and_key() {
        let first = |seed, table, key| of_row(seed, table, key).next_u64();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        assert_ne!(first(1, 2, 3), first(1, 2, 4));
        assert_ne!(first(1, 2, 3), first(1, 3, 3));
        assert_ne!(first(1, 2, 3), first(2, 2, 3));
    }

    #[test]
    fn user_names_have_a_syllable_per_digit() {
        assert_eq!(syllables(2880), "ALININBA");
        assert_eq!(syllables(7), "UL");
    }

    #[test]
    fn numbers_and_texts_stay_within_their_bounds() {
        let mut random = of_row(1, 1, 1);
        let drawn: Vec<i64> = (0..200).map(|_| number(&mut random, 10, 12)).collect();
        assert!(drawn.iter().all(|n| (10..=12).contains(n)) && drawn.contains(&10) && drawn.contains(&12));
        assert!((0..200).all(|_| (3..=5).contains(&letters(&mut random, 3, 5).len())));
        assert!((0..50).all(|_| ("1930-01-01".."1996").contains(&date(&mut random, 1930, 1995).as_str())));
    }
}
