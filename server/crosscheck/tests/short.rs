//! The languages of services in short form, and what the macros make of a struct and its methods.

use crosscheck::short::{
    Answer, Ctx, Ended, Frames, Language, Lines, Map, Resp, Sharded, ShortConnection, StatePart, Unread,
    connection, handlers, service,
};
use crosscheck::testing::{Replica, RequestEnd};
use crosscheck::{Action, ConnectionId, ConnectionsOfReplica, Owed, Progress, Protocol, Service};

/// Notes with their writers, for tests.
#[service(port = 7000, protocol = Lines, name = "notes", shards = 4)]
pub struct Notes {
    notes: Map<String, (String, ConnectionId)>,
    waiting: Vec<(String, Owed)>,
}

#[handlers]
impl Notes {
    /// Keeps a text.
    fn put(
        &mut self,
        cx: &Ctx<'_, Notes>,
        #[key] name: String,
        text: String,
        client: ConnectionId,
    ) -> Answer {
        for (waits_for, owed) in std::mem::take(&mut self.waiting) {
            if waits_for == name {
                cx.answer(owed, text.clone());
            } else {
                self.waiting.push((waits_for, owed));
            }
        }
        self.notes.insert(name, (text, client)).map(|(before, _)| before).into()
    }

    fn get(&mut self, cx: &Ctx<'_, Notes>, #[key] name: String, wait: bool) -> Answer {
        match self.notes.get(&name) {
            Some((text, _)) => text.clone().into(),
            None if wait => {
                self.waiting.push((name, cx.owe_reply()));
                Answer::Later
            }
            None => Answer::Nothing,
        }
    }

    fn count(&mut self, _cx: &Ctx<'_, Notes>, at_least: u8) -> Result<u64, String> {
        let count = self.notes.len() as u64;
        if count < at_least.into() { Err(format!("{count} only\nin this part")) } else { Ok(count) }
    }

    #[closed]
    fn forget(&mut self, _cx: &Ctx<'_, Notes>, ended: Ended) {
        let of_ended = self.notes.iter().filter(|(_, (_, by))| ended.contains(*by));
        let names: Vec<String> = of_ended.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| _ = self.notes.remove(name));
    }
}

fn client(number: u64) -> ShortConnection<Notes> {
    ShortConnection::new(ConnectionId::new(1, 7, number))
}

#[test]
fn methods_are_commands_and_keys_choose_the_part() {
    let mut replica = Replica::new(Sharded::<Notes>::new());
    assert_eq!(replica.service().locks().len(), 4);
    let mut one = client(1);
    let mut ask = |text: &str| String::from_utf8(replica.talk(&mut one, text.as_bytes())).unwrap();
    assert_eq!(ask("PUT a first\nput a second\n\nget a no\n"), "NONE\nfirst\nsecond\n");
    assert_eq!(ask("get b false\ncount 0\n"), "NONE\n0\n", "the last part has none, or one");
    assert_eq!(ask("count 200\n"), "ERROR 0 only in this part\n");
    assert_eq!(ask("count 256\n"), "ERROR at_least: '256' is no number from 0 to 255\n");
    assert_eq!(ask("get a\n"), "ERROR wrong number of arguments; use GET name wait\n");
    assert_eq!(ask("get a perhaps\n"), "ERROR wait: 'perhaps' is neither true nor false\n");
    assert_eq!(ask("forget a\nfrob\n"), "ERROR unknown command 'forget'\nERROR unknown command 'frob'\n");
    assert_eq!(Sharded::<Notes>::kind_name(3), Some("count"));
    let request = NotesRequest::Get { name: "a".into(), wait: false };
    assert_eq!(<Sharded<Notes> as Service>::kind(replica.service(), &request), 2);
    let (part, object) = replica.find("key:a").expect("every key has a part");
    assert_eq!(replica.find(&format!("part:{part}")), Some((part, object)));
    assert_eq!(replica.find("part:4"), None);
}

#[test]
fn a_reply_may_come_later_and_what_ended_connections_left_is_given_up() {
    let mut replica = Replica::new(Sharded::<Notes>::new());
    let (mut one, mut two) = (client(1), client(2));
    assert_eq!(replica.talk(&mut one, b"get a yes\n"), b"");
    let owed = replica.owed();
    assert_eq!(replica.talk(&mut two, b"put a text\n"), b"NONE\n");
    assert_eq!(replica.take_later(), [(owed, b"text\n".to_vec())]);
    replica.talk(&mut one, b"put b text\n");
    let farewell = two.closed().expect("it has asked for something");
    assert_eq!(replica.run(&farewell), RequestEnd::Replied(b"OK\n".to_vec()));
    assert_eq!(replica.talk(&mut one, b"get a no\nget b no\n"), b"NONE\ntext\n");
    let others = replica.service().closed(ConnectionsOfReplica::new(1, 7)).expect("it keeps notes");
    let all = replica.service().closed(ConnectionsOfReplica::new(1, 8)).expect("it keeps notes");
    for (request, left) in [(others, &b"text\n"[..]), (all, b"NONE\n")] {
        let ordered = replica.service().encode(&request);
        replica.run(&ordered);
        assert_eq!(replica.talk(&mut one, b"get b no\n"), left);
    }
    assert_eq!(connection::<Notes>().closed(), None, "it has asked for nothing");
    assert!(Notes::closed(Ended::One(ConnectionId::new(0, 0, 0))).is_some());
}

/// The words of a command in a language, cut anywhere: it asks for more than is there, and for no more than there will
/// be.
fn reads<L: Language>(command: &[u8], expected: &[&str]) {
    for cut in 0..command.len() {
        match L::read(&command[..cut]) {
            Err(Unread::NeedMore(bytes)) => {
                assert!((cut + 1..=command.len()).contains(&bytes), "{cut}: {bytes}")
            }
            other => panic!("{cut}: {other:?}"),
        }
    }
    let (used, words) = L::read(&[command, b"rest"].concat())
        .map(|(used, words)| {
            (used, words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>())
        })
        .expect("it is whole");
    assert_eq!((used, words), (command.len(), expected.iter().map(|word| (*word).to_owned()).collect()));
}

fn framed(words: &[&[u8]]) -> Vec<u8> {
    let mut command = (words.len() as u32).to_le_bytes().to_vec();
    for word in words {
        command.extend((word.len() as u32).to_le_bytes());
        command.extend_from_slice(word);
    }
    command
}

#[test]
fn each_language_reads_its_commands() {
    reads::<Lines>(b"get  a\r\n", &["get", "a"]);
    reads::<Lines>(b"\n", &[]);
    reads::<Resp>(b"*2\r\n$3\r\nget\r\n$1\r\na\r\n", &["get", "a"]);
    reads::<Resp>(b"get a\r\n", &["get", "a"]);
    reads::<Frames>(&framed(&[b"get", b"", b"a\nb"]), &["get", "", "a\nb"]);
}

#[test]
fn what_is_too_long_or_no_command_ends_the_connection() {
    let is_broken = |read: Result<(usize, Vec<&[u8]>), Unread>| matches!(read, Err(Unread::Broken(_)));
    let long = "x".repeat(1 << 20);
    assert!(is_broken(Lines::read(long.as_bytes())) && is_broken(Resp::read(long.as_bytes())));
    for wrong in ["*65\r\n", "*x\r\n", "*1\r\n+OK\r\n", "*1\r\n$1000000\r\n", "*1\r\n$1\r\nab\r\n"] {
        assert!(is_broken(Resp::read(wrong.as_bytes())), "{wrong:?}");
    }
    assert!(is_broken(Frames::read(&65_u32.to_le_bytes())));
    assert!(is_broken(Frames::read(&[1, 0, 0, 0, 255, 255, 255, 255])));
    let mut client = client(1);
    let Progress::Done { used, action: Action::Close(reply) } = client.next(long.as_bytes()) else {
        panic!("it is closed")
    };
    assert_eq!((used, &reply[..]), (long.len(), &b"ERROR protocol error: a line is too long\n"[..]));
}

#[test]
fn each_language_writes_every_answer() {
    let list = Answer::List(vec![Answer::Number(-1), Answer::Nothing]);
    let answers = [
        (Answer::Done, "OK\n", "+OK\r\n", "\0OK"),
        ("PONG".into(), "PONG\n", "+PONG\r\n", "\0PONG"),
        (7_u8.into(), "7\n", ":7\r\n", "\u{1}7"),
        ("a\nb".to_owned().into(), "a\\nb\n", "$3\r\na\nb\r\n", "\u{2}a\nb"),
        (None::<u64>.into(), "NONE\n", "$-1\r\n", "\u{3}"),
        (Answer::Error("no\r\nno".into()), "ERROR no  no\n", "-ERR no  no\r\n", "\u{4}no\r\nno"),
        (list, "2\n-1\nNONE\n", "*2\r\n:-1\r\n$-1\r\n", "\u{5}\u{3}\0\0\0\u{1}-1\u{1}\0\0\0\u{3}"),
        (true.into(), "1\n", ":1\r\n", "\u{1}1"),
    ];
    for (answer, line, resp, frame) in answers {
        let said = |write: fn(&Answer, &mut Vec<u8>)| {
            let mut reply = Vec::new();
            write(&answer, &mut reply);
            String::from_utf8(reply).unwrap()
        };
        assert_eq!((said(Lines::write).as_str(), said(Resp::write).as_str()), (line, resp));
        let framed = said(Frames::write);
        assert_eq!((framed.as_bytes()[0] as usize, &framed[4..]), (frame.len(), frame));
    }
    for write in [Lines::write, Resp::write, Frames::write] {
        let mut reply = Vec::new();
        write(&Answer::Later, &mut reply);
        assert_eq!(reply, b"");
    }
}
