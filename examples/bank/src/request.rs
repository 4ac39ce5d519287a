//! The requests to the bank. The log has their derived encoding.

use crosscheck::object::{Kinds, Reader, Summed};
use crosscheck::{Malformed, Owed};

use crate::state::Number;

/// A payment that may wait for money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub struct Payment {
    /// The payer's account.
    pub from: Number,
    /// The payee's account.
    pub to: Number,
    /// The amount in cents.
    pub amount: u64,
    /// Ordered time in microseconds at which the payment is given up.
    pub deadline_us: u64,
    /// What its client waits for.
    pub owed: Owed,
}

/// One request: of a client, or one that the bank starts itself (the last four).
#[derive(Clone, Debug, Kinds, PartialEq, Eq, Summed)]
#[allow(missing_docs, reason = "amounts are in cents; accounts are called by their numbers")]
pub enum Request {
    /// Opens an account.
    Open { number: Number, owner: String, amount: u64 },
    /// Pays money in.
    Deposit { number: Number, amount: u64 },
    /// Takes money out.
    Withdraw { number: Number, amount: u64 },
    /// Moves money.
    Transfer { from: Number, to: Number, amount: u64 },
    /// The balance of an account.
    Balance { number: Number },
    /// The total of all accounts.
    Total,
    /// From now on pays this many hundredths of a percent after each period; 0 for no interest.
    Interest { rate: u32, seconds: u64 },
    /// Names the account that [`Request::Sweep`] moves the money to.
    Link { from: Number, to: Number },
    /// Moves everything to the linked account.
    Sweep { from: Number },
    /// Moves money as soon as there is enough, within this many seconds; the reply comes when that is decided.
    Pay { from: Number, to: Number, amount: u64, seconds: u64 },
    /// How many payments wait for money on an account.
    Waiting { number: Number },
    /// The number of the account's card, drawn at the first such request.
    Card { number: Number },
    /// A period is over.
    Tick,
    /// Pays interest to the accounts of one bucket.
    Accrue { branch: u32, bucket: u32, rate: u32 },
    /// Money has arrived, or the time is over: tries a payment that has waited.
    Settle(Payment),
    /// The time of some payment of this account is over.
    Expire { number: Number },
}

impl Request {
    /// The request as bytes for the log.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.pack(&mut bytes);
        bytes
    }

    /// The request in `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that [`Request::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let request = Request::unpack(&mut reader)?;
        reader.end()?;
        Ok(request)
    }
}
