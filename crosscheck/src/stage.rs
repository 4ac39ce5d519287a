//! The path of a request, the same for every mode: a mode changes what a stage does, never which stages exist.

/// Where a request is on its way from a client's bytes to the reply (docs/design.md, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A client's bytes become an ordered request with a checksum (`clients`).
    Decode,
    /// The group agrees on its position (`order`).
    Order,
    /// It gets tickets for the locks of its footprint (`schedule`).
    Schedule,
    /// The handler runs once its turns have come, on checked objects, which are then sealed (`execute`).
    Execute,
    /// Replicas compare what it touched (`vote`).
    Vote,
    /// The reply leaves for the client (`clients`).
    Externalize,
}

impl Stage {
    /// Every stage, in the order of the path.
    pub const PATH: [Stage; 6] =
        [Stage::Decode, Stage::Order, Stage::Schedule, Stage::Execute, Stage::Vote, Stage::Externalize];

    /// The name that traces and metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Decode => "decode",
            Stage::Order => "order",
            Stage::Schedule => "schedule",
            Stage::Execute => "execute",
            Stage::Vote => "vote",
            Stage::Externalize => "externalize",
        }
    }
}
