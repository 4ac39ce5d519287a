//! The record of one injection: one line of JSON, sufficient to repeat it.

use serde::{Deserialize, Serialize};

use crate::fault::{Bits, TracerFault};
use crate::inject::Flip;
use crate::parts::HandlerPart;

/// How an injection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectionClass {
    /// Every reply was right, and nothing else was observed.
    Masked,
    /// Every reply was right, and the target crashed afterwards.
    Late,
    /// A valid reply was wrong, and no error was reported. Of a single server.
    Undetected,
    /// The target's own protection detected the error: an error reply, or an exit of its own.
    Detected,
    /// Detected by other means: crash, hang, error reply, invalid reply.
    Otherwise,
    /// A replica was corrupted, the others healed it, and all are equal again.
    Repaired,
    /// Right replies, but a replica's state differs, and no replica has detected it yet.
    Latent,
    /// The victim crashed, hung, or ended itself; it was restarted and received the state of the others.
    Replaced,
    /// Clients of healthy replicas received no reply.
    NoProgress,
    /// A wrong reply reached a client of a cluster: the only failure of error isolation.
    WrongReply,
    /// The fault could not be injected at the intended place: not counted.
    Lost,
}

impl InjectionClass {
    /// In the order of the tables.
    pub const ALL: [InjectionClass; 11] = [
        InjectionClass::Masked,
        InjectionClass::Late,
        InjectionClass::Undetected,
        InjectionClass::Detected,
        InjectionClass::Otherwise,
        InjectionClass::Repaired,
        InjectionClass::Latent,
        InjectionClass::Replaced,
        InjectionClass::NoProgress,
        InjectionClass::WrongReply,
        InjectionClass::Lost,
    ];

    /// Its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            InjectionClass::Masked => "masked",
            InjectionClass::Late => "late",
            InjectionClass::Undetected => "undetected",
            InjectionClass::Detected => "detected",
            InjectionClass::Otherwise => "otherwise",
            InjectionClass::Repaired => "repaired",
            InjectionClass::Latent => "latent",
            InjectionClass::Replaced => "replaced",
            InjectionClass::NoProgress => "no progress",
            InjectionClass::WrongReply => "WRONG REPLY",
            InjectionClass::Lost => "lost",
        }
    }

    /// Whether the fault had an effect while the run was observed: SEI counts a crash after the right replies as none.
    pub fn is_manifested(self) -> bool {
        !matches!(self, InjectionClass::Masked | InjectionClass::Late | InjectionClass::Lost)
    }

    /// Whether a wrong reply reached a client undetected.
    pub fn is_failure(self) -> bool {
        matches!(self, InjectionClass::Undetected | InjectionClass::WrongReply)
    }

    /// Whether the run should be inspected: it failed, left a wrong state, or stopped the cluster.
    pub fn is_suspicious(self) -> bool {
        self.is_failure() || matches!(self, InjectionClass::Latent | InjectionClass::NoProgress)
    }
}

/// One injection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// large: a line of a results file, whose members are its columns
pub struct InjectionRecord {
    /// Number within its campaign and fault.
    pub id: u64,
    /// The campaign's seed: with `fault` and `id` it decides everything.
    pub seed: u64,
    /// Its type.
    pub fault: TracerFault,
    /// The range from which the bit was drawn.
    pub bits: Bits,
    /// False in a null campaign.
    pub flips: bool,
    /// Hash of the profile from which the site was drawn.
    pub profile: String,
    /// Number of the dynamic instruction in the measured part; of a cluster, of the sample.
    pub index: u64,
    /// Its address.
    pub address: u64,
    /// Its module's file name.
    pub module: String,
    /// Its offset in the module.
    pub offset: u64,
    /// The function it belongs to, where the module has symbols.
    pub symbol: String,
    /// Functions on the stack, the nearest first.
    #[serde(default)]
    pub callers: Vec<String>,
    /// Of a hardened program: the part of a handler that the instruction is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<HandlerPart>,
    /// The instruction in assembly language.
    pub text: String,
    /// Breakpoint hits until the site was reached.
    pub hits: u32,
    /// The flipped place and bit.
    pub flip: Option<Flip>,
    /// How it ended.
    pub class: InjectionClass,
    /// Details.
    pub subclass: String,
    /// Number of the first wrong or missing reply.
    pub message: Option<u64>,
    /// That reply, or other details of the end.
    #[serde(rename = "told")]
    pub details: String,
    /// Of a cluster: whether the digests of all replicas' whole states were equal in the end.
    #[serde(default)]
    pub states_equal: Option<bool>,
    /// Of a cluster: the replicas that detected an error by themselves.
    #[serde(default)]
    pub noticed: Vec<u8>,
    /// Signal of a crash.
    pub signal: Option<i32>,
    /// Exit code.
    pub exit: Option<i32>,
    /// From the start to the measured part, in microseconds.
    pub start_us: u64,
    /// From the start to the end.
    pub total_us: u64,
    /// How often the run was repeated because the fault could not be injected at the intended place.
    pub retries: u32,
}

/// Site, instruction, place and bit of the flip, class, subclass, first wrong reply.
pub type Essence<'a> = (u64, u64, &'a str, Option<(&'a str, u32)>, InjectionClass, &'a str, Option<u64>);

impl InjectionRecord {
    /// The part that a repetition must share: everything except times, the count of retries, and contents that hold
    /// times.
    pub fn essence(&self) -> Essence<'_> {
        let flip = self.flip.as_ref().map(|flip| (flip.place.as_str(), flip.bit));
        (self.index, self.address, &self.text, flip, self.class, &self.subclass, self.message)
    }
}
