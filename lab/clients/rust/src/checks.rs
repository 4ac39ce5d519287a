//! What every Rust library has to do, by named checks.

use crate::{Library, Make, Said, key};
use std::fmt::Debug;
use std::time::Duration;

/// `Ok(false)`: the library has no such call.
type Checked = Result<bool, String>;

fn same<T: PartialEq + Debug>(what: &str, got: Said<T>, expected: T) -> Result<(), String> {
    match got {
        Ok(got) if got == expected => Ok(()),
        got => Err(format!("{what}: got {got:.60?}, expected {expected:.60?}")),
    }
}

fn holds(l: &mut dyn Library, name: &str, expected: Option<&[u8]>) -> Result<(), String> {
    same("get", l.get(&key(name)), expected.map(<[u8]>::to_vec))
}

fn stores(l: &mut dyn Library, name: &str, value: &[u8]) -> Result<(), String> {
    same("set", l.set(&key(name), value, 0), true)
}

/// Stores and reads.
fn keeps(l: &mut dyn Library, name: &str, value: &[u8]) -> Checked {
    stores(l, name, value)?;
    holds(l, name, Some(value))?;
    Ok(true)
}

/// Makes all checks that the library offers calls for, and prints how each ended.
pub fn run(make: Make, servers: &[String]) {
    let mut library = make(servers);
    for (name, check) in CHECKS {
        print(name, check(&mut *library));
    }
    print("every_server", every_server(make, servers));
    print("concurrent", concurrent(make, servers));
    print("expiry", expiry(&mut *library));
    print("flush", flush(&mut *library));
}

fn print(name: &str, checked: Checked) {
    match checked {
        Ok(true) => println!("ok\t{name}"),
        Ok(false) => {}
        Err(why) => println!("no\t{name}\t{}", why.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

type LibraryCheck = fn(&mut dyn Library) -> Checked;

const CHECKS: [(&str, LibraryCheck); 21] = [
    ("set_get", |l| keeps(l, "a", b"value").and_then(|_| keeps(l, "a", b"other"))),
    ("missing", |l| holds(l, "nobody", None).map(|()| true)),
    ("empty_value", |l| keeps(l, "empty", b"")),
    ("add", |l| conditional(l, "add", (None, b"1"), (Some(b"1"), b"1"))),
    ("replace", |l| conditional(l, "replace", (Some(b"ab"), b"1"), (None, b""))),
    ("append", |l| conditional(l, "append", (Some(b"ab"), b"ab1"), (None, b""))),
    ("prepend", |l| conditional(l, "prepend", (Some(b"ab"), b"1ab"), (None, b""))),
    ("cas", cas),
    ("incr", incr),
    ("decr", decr),
    ("touch", touch),
    ("delete", delete),
    ("multi_get", multi_get),
    ("large", large),
    ("too_large", too_large),
    ("binary_value", binary_value),
    ("unicode_value", |l| keeps(l, "unicode", "naïve — 日本語 🎉".as_bytes())),
    ("unicode_key", |l| if l.has_unicode_keys() { keeps(l, "ключ-日本", b"1") } else { Ok(false) }),
    ("long_key", |l| keeps(l, &"k".repeat(250 - key("").len()), b"1")),
    ("key_too_long", key_too_long),
    ("version", |l| same("a version", l.version().map(|v| v.contains("1.")), true).map(|()| true)),
];

/// What a key held, and holds after the call.
type BeforeAfter = (Option<&'static [u8]>, &'static [u8]);

/// One of `add`, `replace`, `append`, `prepend` of `1`, once where it has an effect and once where it has none.
fn conditional(l: &mut dyn Library, how: &str, with: BeforeAfter, without: BeforeAfter) -> Checked {
    for (effect, (before, after)) in [(false, without), (true, with)] {
        let name = format!("{how}-{effect}");
        if let Some(value) = before {
            stores(l, &name, value)?;
        }
        let Some(said) = l.store(how, &key(&name), b"1") else { return Ok(false) };
        if l.distinguishes() {
            same(how, said, effect)?;
        } else {
            said?;
        }
        holds(l, &name, (effect || before.is_some()).then_some(after))?;
    }
    Ok(true)
}

fn cas(l: &mut dyn Library) -> Checked {
    stores(l, "cas", b"1")?;
    let Some(unique) = l.gets(&key("cas")) else { return Ok(false) };
    let unique = unique?;
    same("cas", l.cas(&key("cas"), b"2", unique), true)?;
    stores(l, "cas", b"3")?;
    same("cas with an old unique", l.cas(&key("cas"), b"4", unique), false)?;
    holds(l, "cas", Some(b"3")).map(|()| true)
}

fn incr(l: &mut dyn Library) -> Checked {
    same("incr of nothing", l.count(&key("uncounted"), 1), l.new_counter())?;
    stores(l, "incr", b"10")?;
    same("incr", l.count(&key("incr"), 1 << 40), Some((1 << 40) + 10)).map(|()| true)
}

fn decr(l: &mut dyn Library) -> Checked {
    stores(l, "decr", b"10")?;
    same("decr", l.count(&key("decr"), -3), Some(7))?;
    same("decr below zero", l.count(&key("decr"), -100), Some(0)).map(|()| true)
}

fn touch(l: &mut dyn Library) -> Checked {
    let Some(said) = l.touch(&key("nobody"), 100) else { return Ok(false) };
    same("touch nothing", said, false)?;
    same("set", l.set(&key("touch"), b"1", 2), true)?;
    same("touch", l.touch(&key("touch"), 100).expect("it has the call"), true).map(|()| true)
}

fn delete(l: &mut dyn Library) -> Checked {
    stores(l, "delete", b"1")?;
    same("delete", l.delete(&key("delete")), true)?;
    same("delete again", l.delete(&key("delete")), false)?;
    holds(l, "delete", None).map(|()| true)
}

fn multi_get(l: &mut dyn Library) -> Checked {
    let mut expected: Vec<(String, Vec<u8>)> =
        (0..60).map(|n| (key(&format!("many{n}")), n.to_string().into_bytes())).collect();
    for (name, value) in &expected {
        same("set", l.set(name, value, 0), true)?;
    }
    let nobody = key("nobody");
    let keys: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).chain([nobody.as_str()]).collect();
    let mut found = l.get_many(&keys)?;
    found.sort();
    expected.sort();
    same("get of many", Ok(found), expected).map(|()| true)
}

fn large(l: &mut dyn Library) -> Checked {
    let value: Vec<u8> = (0..900_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    keeps(l, "large", &value)
}

fn too_large(l: &mut dyn Library) -> Checked {
    if l.set(&key("too_large"), &vec![b'x'; 2_000_000], 0) == Ok(true) {
        return Err("2 MB were stored".to_owned());
    }
    keeps(l, "after", b"1")?;
    keeps(l, "after", b"2")
}

fn binary_value(l: &mut dyn Library) -> Checked {
    let mut value: Vec<u8> = (0..=255).cycle().take(1024).collect();
    value.extend_from_slice(b"\r\nEND\r\nVALUE x 0 3\r\nabc\r\n");
    keeps(l, "binary", &value)
}

fn key_too_long(l: &mut dyn Library) -> Checked {
    if l.set(&"k".repeat(251), b"1", 0) == Ok(true) {
        return Err("a key of 251 bytes was taken".to_owned());
    }
    keeps(l, "after", b"1")
}

fn every_server(make: Make, servers: &[String]) -> Checked {
    let mut clients: Vec<_> = servers.iter().map(|server| make(std::slice::from_ref(server))).collect();
    for number in 0..clients.len() {
        let value = number.to_string().into_bytes();
        stores(&mut *clients[number], "across", &value)?;
        for client in &mut clients {
            holds(&mut **client, "across", Some(&value))?;
        }
    }
    Ok(true)
}

fn concurrent(make: Make, servers: &[String]) -> Checked {
    std::thread::scope(|scope| {
        let work = |number| {
            let mut client = make(servers);
            (0..60).try_for_each(|turn| {
                keeps(&mut *client, &format!("thread{number}"), turn.to_string().as_bytes()).map(|_| ())
            })
        };
        let threads: Vec<_> = (0..6).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(true)
}

fn expiry(l: &mut dyn Library) -> Checked {
    same("set", l.set(&key("short"), b"1", 2), true)?;
    holds(l, "short", Some(b"1"))?;
    std::thread::sleep(Duration::from_millis(3200));
    holds(l, "short", None)?;
    if l.touch(&key("touch"), 100).is_some() {
        holds(l, "touch", Some(b"1"))?;
    }
    Ok(true)
}

fn flush(l: &mut dyn Library) -> Checked {
    stores(l, "flush", b"1")?;
    l.flush()?;
    holds(l, "flush", None).map(|()| true)
}
