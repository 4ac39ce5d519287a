//! The packets of MQTT 3.1.1 that a client of a broker needs, and how a broker's answers deviate from the right ones.

/// Asks a broker for an answer: what it sent before is here then.
pub const PING: [u8; 2] = [0xC0, 0];
/// The answer to [`PING`].
pub const PONG: [u8; 2] = [0xD0, 0];

/// First byte of an acknowledgement of a message at QoS 1.
pub const PUBACK: u8 = 0x40;
/// First bytes of the three acknowledgements of a message at QoS 2.
pub const PUBREC: u8 = 0x50;
/// See [`PUBREC`].
pub const PUBREL: u8 = 0x62;
/// See [`PUBREC`].
pub const PUBCOMP: u8 = 0x70;

/// Begins a session of this name; one that is not `clean` outlives its connection.
pub fn connect(name: &str, clean: bool) -> Vec<u8> {
    let mut rest = string("MQTT");
    rest.extend_from_slice(&[4, u8::from(clean) << 1, 0, 0]);
    rest.extend(string(name));
    packet(0x10, &rest)
}

/// Subscribes to topics at this quality of service.
pub fn subscribe(id: u16, topics: &str, qos: u8) -> Vec<u8> {
    packet(0x82, &[&id.to_be_bytes()[..], &string(topics), &[qos]].concat())
}

/// Ends a subscription.
pub fn unsubscribe(id: u16, topics: &str) -> Vec<u8> {
    packet(0xA2, &[&id.to_be_bytes()[..], &string(topics)].concat())
}

/// A message; `id` is not sent at QoS 0.
pub fn publish(id: u16, topic: &str, payload: &[u8], qos: u8, retained: bool) -> Vec<u8> {
    let id = if qos > 0 { id.to_be_bytes().to_vec() } else { Vec::new() };
    packet(0x30 | qos << 1 | u8::from(retained), &[&string(topic)[..], &id, payload].concat())
}

/// An acknowledgement of the message with this id.
pub fn acknowledge(first: u8, id: u16) -> Vec<u8> {
    packet(first, &id.to_be_bytes())
}

/// These bytes begin no packet of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPacket;

/// Length of the first packet in these bytes: `None` while it is incomplete.
///
/// # Errors
/// If no packet of a broker begins like this.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, NoPacket> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let fixed = match first {
        0x20 | PUBACK | PUBREC | PUBREL | PUBCOMP | 0xB0 => Some(2),
        0xD0 => Some(0),
        0x90 => None,
        _ if first & 0xF0 == 0x30 && first & 6 != 6 => None,
        _ => return Err(NoPacket),
    };
    let mut rest = 0;
    for place in 0..4 {
        let Some(&byte) = bytes.get(1 + place) else { return Ok(None) };
        rest |= usize::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            if fixed.is_some_and(|fixed| fixed != rest) {
                return Err(NoPacket);
            }
            let whole = 2 + place + rest;
            return Ok((whole <= bytes.len()).then_some(whole));
        }
    }
    Err(NoPacket)
}

/// The packets of these bytes, which are whole.
pub fn packets(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Ok(Some(length)) = length(bytes) {
        let (one, rest) = bytes.split_at(length);
        all.push(one);
        bytes = rest;
    }
    all
}

/// A message of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// Its topic.
    pub topic: &'a [u8],
    /// Its id; 0 at QoS 0.
    pub id: u16,
    /// Its quality of service.
    pub qos: u8,
    /// What it says.
    pub payload: &'a [u8],
}

/// A packet as a message; `None` if it is another packet, or a malformed one.
pub fn message(packet: &[u8]) -> Option<Publication<'_>> {
    let (first, rest) = packet.split_first().filter(|(first, _)| **first & 0xF0 == 0x30)?;
    let rest = &rest[rest.iter().position(|byte| byte & 0x80 == 0)? + 1..];
    let long = usize::from(u16::from_be_bytes(rest.first_chunk().copied()?));
    let (topic, rest) = rest[2..].split_at_checked(long)?;
    let qos = first >> 1 & 3;
    let (id, payload) = match qos {
        0 => (0, rest),
        _ => (u16::from_be_bytes(rest.first_chunk().copied()?), &rest[2..]),
    };
    Some(Publication { topic, id, qos, payload })
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut length = rest.len();
    loop {
        let more = length > 0x7F;
        bytes.push((length & 0x7F) as u8 | u8::from(more) << 7);
        length >>= 7;
        if !more {
            break;
        }
    }
    bytes.extend_from_slice(rest);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_cut_and_read() {
        let long = publish(7, "a/b", &[1; 300], 2, true);
        let all = [&long[..], &acknowledge(PUBREC, 9), &PONG].concat();
        assert_eq!(packets(&all).len(), 3);
        let wanted = Publication { topic: b"a/b", id: 7, qos: 2, payload: &[1; 300] };
        assert_eq!(message(packets(&all)[0]), Some(wanted));
        assert_eq!(message(&PONG), None);
        for cut in 0..long.len() {
            assert_eq!(length(&long[..cut]), Ok(None), "{cut}");
        }
        for wrong in [&[0x36, 0][..], &[0x40, 3], &[0, 0], &[0x30, 0xFF, 0xFF, 0xFF, 0xFF]] {
            assert_eq!(length(wrong), Err(NoPacket), "{wrong:?}");
        }
    }
}
