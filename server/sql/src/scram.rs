//! Passwords without sending them: SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL's clients speak it (PostgreSQL's
//! documentation, *SASL Authentication*), both sides.
//!
//! A line of the password file has the password itself, or what PostgreSQL keeps of it (`pg_authid.rolpassword`):
//! `SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER`. Keys are derived once for each line, since that is slow by design: a
//! client that only asks must not be able to repeat it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crosscheck::Passwords;
use parking_lot::Mutex;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

/// The name of the mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// What PostgreSQL keeps of a password begins so: a line with it that is malformed is no password.
const VERIFIER: &[u8] = b"SCRAM-SHA-256$";
/// Rounds of the derivation at most that a client takes part in.
const MAX_ITERATIONS: u32 = 1_000_000;
/// Rounds of the derivation for a password in plain text: PostgreSQL's number.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// Bytes of a salt.
const SALT: usize = 16;
/// Bytes of a hash.
const HASH: usize = 32;
/// Names whose keys are kept, at most.
const MAX_KNOWN: usize = 1024;

/// What a server keeps of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramKeys {
    iterations: u32,
    salt: Vec<u8>,
    stored: [u8; HASH],
    server: [u8; HASH],
}

/// A line, and the keys that were derived from it.
type KnownKeys = (Vec<u8>, Arc<ScramKeys>);

/// The users of a password file, and their keys.
pub struct Users {
    passwords: Passwords,
    /// By name.
    known: Mutex<BTreeMap<String, KnownKeys>>,
    /// Salts are derived from it, so that an unknown name has one as well.
    secret: hmac::Key,
}

impl Users {
    /// The users of this file.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn new(passwords: Passwords) -> Self {
        let mut secret = [0; HASH];
        // bookkeeping: it reaches no state
        getrandom::fill(&mut secret)
            .unwrap_or_else(|error| panic!("the system has no random numbers: {error}"));
        Users { passwords, known: Mutex::default(), secret: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }

    /// The keys of a user; for an unknown name those that no password has, so that the client learns nothing.
    pub fn keys(&self, name: &str) -> Arc<ScramKeys> {
        let drawn = hmac::sign(&self.secret, name.as_bytes());
        let salt = &drawn.as_ref()[..SALT];
        let is_broken = |line: &Vec<u8>| line.starts_with(VERIFIER) && ScramKeys::parse(line).is_none();
        let Some(line) = self.passwords.password_of(name.as_bytes()).filter(|line| !is_broken(line)) else {
            let [stored, server] = [[0; HASH]; 2];
            return Arc::new(ScramKeys { iterations: ITERATIONS.get(), salt: salt.to_vec(), stored, server });
        };
        let mut known = self.known.lock();
        if let Some((of, keys)) = known.get(name)
            && *of == line
        {
            return keys.clone();
        }
        let keys = ScramKeys::parse(&line).unwrap_or_else(|| ScramKeys::derive(&line, salt, ITERATIONS));
        let keys = Arc::new(keys);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(name.to_owned(), (line, keys.clone()));
        keys
    }
}

impl ScramKeys {
    /// Those of a password.
    fn derive(password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Self {
        let (client, server) = derived(password, salt, iterations);
        let stored = hash(&client);
        ScramKeys { iterations: iterations.get(), salt: salt.to_vec(), stored, server }
    }

    /// Those that PostgreSQL has kept.
    fn parse(line: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(line).ok()?.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (derivation, keys) = rest.split_once('$')?;
        let ((iterations, salt), (stored, server)) = (derivation.split_once(':')?, keys.split_once(':')?);
        Some(ScramKeys {
            iterations: iterations.parse().ok()?,
            salt: STANDARD.decode(salt).ok()?,
            stored: STANDARD.decode(stored).ok()?.try_into().ok()?,
            server: STANDARD.decode(server).ok()?.try_into().ok()?,
        })
    }
}

/// The server's side between its challenge and the client's proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// What the client's first message begins with: its wish for channel binding.
    header: String,
    /// The rest of it, and the challenge.
    exchanged: String,
    /// Both sides' nonces.
    nonce: String,
    keys: Arc<ScramKeys>,
}

impl Challenge {
    /// For a client's first message; its text is [`Challenge::text`]. None if it is malformed, or wants a channel
    /// binding, which is not offered.
    pub fn new(first: &str, keys: Arc<ScramKeys>, own_nonce: &[u8]) -> Option<Self> {
        let mut parts = first.splitn(3, ',');
        let (binding, name, bare) = (parts.next()?, parts.next()?, parts.next()?);
        let is_without = matches!(binding, "n" | "y") && name.is_empty();
        let nonce = bare.split(',').nth(1)?.strip_prefix("r=").filter(|nonce| !nonce.is_empty())?;
        if !is_without || !bare.starts_with("n=") {
            return None;
        }
        let nonce = format!("{nonce}{}", STANDARD.encode(own_nonce));
        let text = format!("r={nonce},s={},i={}", STANDARD.encode(&keys.salt), keys.iterations);
        let (header, exchanged) = (format!("{binding},,"), format!("{bare},{text}"));
        Some(Challenge { header, exchanged, nonce, keys })
    }

    /// What the client is sent.
    pub fn text(&self) -> &str {
        let challenge = self.exchanged.rfind(",r=").map_or(0, |at| at + 1);
        &self.exchanged[challenge..]
    }

    /// The server's last message, if the client's has the proof that it knows the password.
    pub fn accept(&self, last: &str) -> Option<String> {
        let (without, proof) = last.rsplit_once(",p=")?;
        let proof: [u8; HASH] = STANDARD.decode(proof).ok()?.try_into().ok()?;
        let mut fields = without.split(',');
        let is_of_this = fields.next()?.strip_prefix("c=")? == STANDARD.encode(&self.header)
            && fields.next()?.strip_prefix("r=")? == self.nonce;
        let signed = format!("{},{without}", self.exchanged);
        let signature = sign(&self.keys.stored, &signed);
        let client = std::array::from_fn(|at| proof[at] ^ signature[at]);
        let is_right = bool::from(hash(&client).ct_eq(&self.keys.stored));
        (is_of_this && is_right).then(|| format!("v={}", STANDARD.encode(sign(&self.keys.server, &signed))))
    }
}

/// The client's side after its first message.
pub struct Proof {
    /// The client's last message.
    pub text: String,
    /// The server's, if it knows the password too.
    pub expected: String,
}

/// What a client begins with; `nonce` is without commas. PostgreSQL has the user's name from elsewhere.
pub fn first_message(nonce: &str) -> String {
    format!("n,,n=,r={nonce}")
}

impl Proof {
    /// The answer to a challenge; none if it is none for this nonce.
    pub fn new(nonce: &str, challenge: &str, password: &[u8]) -> Option<Self> {
        let mut fields = challenge.split(',');
        let both = fields.next()?.strip_prefix("r=")?;
        let salt = STANDARD.decode(fields.next()?.strip_prefix("s=")?).ok()?;
        let iterations = fields.next()?.strip_prefix("i=")?.parse::<NonZeroU32>().ok()?;
        if !both.starts_with(nonce) || iterations.get() > MAX_ITERATIONS {
            return None;
        }
        let (client, server) = derived(password, &salt, iterations);
        let without = format!("c={},r={both}", STANDARD.encode("n,,"));
        let signed = format!("n=,r={nonce},{challenge},{without}");
        let signature = sign(&hash(&client), &signed);
        let proof: [u8; HASH] = std::array::from_fn(|at| client[at] ^ signature[at]);
        let text = format!("{without},p={}", STANDARD.encode(proof));
        Some(Proof { text, expected: format!("v={}", STANDARD.encode(sign(&server, &signed))) })
    }
}

/// The client's and the server's key (RFC 5802, section 3).
fn derived(password: &[u8], salt: &[u8], iterations: NonZeroU32) -> ([u8; HASH], [u8; HASH]) {
    // Text is brought into one form; PostgreSQL takes what has none as it is.
    let prepared = std::str::from_utf8(password).ok().and_then(|text| stringprep::saslprep(text).ok());
    let password = prepared.as_deref().map_or(password, str::as_bytes);
    let mut salted = [0; HASH];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, password, &mut salted);
    (sign(&salted, "Client Key"), sign(&salted, "Server Key"))
}

fn sign(key: &[u8; HASH], text: &str) -> [u8; HASH] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    std::array::from_fn(|at| tag.as_ref()[at])
}

fn hash(bytes: &[u8; HASH]) -> [u8; HASH] {
    let digest = digest::digest(&digest::SHA256, bytes);
    std::array::from_fn(|at| digest.as_ref()[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(lines: &str) -> Users {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("passwords");
        std::fs::write(&path, lines).expect("a file");
        Users::new(Passwords::open(&path).expect("lines"))
    }

    fn logs_in(users: &Users, name: &str, password: &str) -> bool {
        let challenge = Challenge::new(&first_message("abc"), users.keys(name), b"own").expect("a challenge");
        let proof = Proof::new("abc", challenge.text(), password.as_bytes()).expect("a proof");
        challenge.accept(&proof.text).is_some_and(|last| last == proof.expected)
    }

    /// RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_standard() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("a salt");
        let keys = Arc::new(ScramKeys::derive(b"pencil", &salt, ITERATIONS));
        let client = "rOprNGfwEbeRWgbNEkqO";
        let first = format!("n,,n=user,r={client}");
        let both = format!("{client}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
        let challenge = Challenge {
            header: "n,,".to_owned(),
            exchanged: format!("n=user,r={client},r={both},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
            nonce: both.clone(),
            keys: keys.clone(),
        };
        assert_eq!(challenge.text(), format!("r={both},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        let last = format!("c=biws,r={both},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let accepted = challenge.accept(&last);
        assert_eq!(accepted.as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(Challenge::new(&first, keys, b"x").is_some());
    }

    #[test]
    fn a_password_opens_only_for_its_own_name() {
        let users = users("ann:one\nbob:two:three\n");
        assert!(logs_in(&users, "ann", "one") && logs_in(&users, "bob", "two:three"));
        for (name, password) in
            [("ann", "two:three"), ("ann", ""), ("carl", ""), ("carl", "one"), ("", "one")]
        {
            assert!(!logs_in(&users, name, password), "{name} {password}");
        }
        // An unknown name has a salt as well, and always the same one.
        assert_eq!(users.keys("carl"), users.keys("carl"));
        assert_ne!(users.keys("carl").salt, users.keys("ann").salt);
    }

    #[test]
    fn what_postgres_keeps_of_a_password_opens_as_well() {
        let keys = ScramKeys::derive(b"secret", b"sixteen bytes ..", ITERATIONS);
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        let line = format!(
            "ann:SCRAM-SHA-256$4096:{}${}:{}\n",
            encode(&keys.salt),
            encode(&keys.stored),
            encode(&keys.server)
        );
        let users = self::users(&line);
        assert!(logs_in(&users, "ann", "secret") && !logs_in(&users, "ann", "Secret"));
        assert!(!logs_in(&users, "ann", line[4..].trim()), "what is kept opens nothing");
        let broken = self::users(&line.replace("=:", ":"));
        for password in ["secret", line[4..].replace("=:", ":").trim()] {
            assert!(!logs_in(&broken, "ann", password), "a line that is cut off opens nothing");
        }
    }

    #[test]
    fn no_changed_message_is_accepted() {
        let users = users("ann:one\n");
        let challenge =
            Challenge::new(&first_message("abc"), users.keys("ann"), b"own").expect("a challenge");
        let proof = Proof::new("abc", challenge.text(), b"one").expect("a proof").text;
        assert!(challenge.accept(&proof).is_some());
        for at in 0..proof.len() {
            let mut changed = proof.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).expect("ASCII");
            assert!(challenge.accept(&changed).is_none(), "{changed}");
        }
        for first in
            ["", "n,,", "p=tls-server-end-point,,n=,r=a", "n,a=x,n=,r=a", "n,,n=", "n,,n=,r=", "n,,m=,r=a"]
        {
            assert!(Challenge::new(first, users.keys("ann"), b"own").is_none(), "{first}");
        }
    }
}
