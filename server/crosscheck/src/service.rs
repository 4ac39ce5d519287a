//! The traits that a service author implements: a deterministic service, and the protocol of its clients.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object::{Members, ObjectId, RegionId, Shape};
use schedule::{Footprint, Keys, Lock, Locks, Retry, locks_of, locks_of_mut};
use wire::Malformed;

use crate::Cx;
use crate::behavior::Behaviors;
use crate::clients::listing::ClientAddress;
use crate::connections::{ConnectionId, ConnectionsOfReplica};
use crate::counters::ClientCounters;
use crate::explain::RepairedObject;
use crate::naming::Words;
use crate::reads::NeedsBatch;

/// A deterministic, multithreaded service; docs/determinism.md, section 9, lists what it may do.
///
/// Everything `execute` sees is a function of the ordered log: state behind the locks it takes through [`Cx`], the time
/// of [`now_us`](schedule::Cx::now_us), the ids of new objects. It keeps no other state that could reach a reply.
pub trait Service: Locks + Sized + Send + Sync + 'static {
    /// One decoded request.
    type Request: Clone + Send + Sync + 'static;

    /// The behaviors that this release can act as. A release that computes another reply or state from the same
    /// requests has a new one, and asks [`Cx::behavior`] which of them to show; the release after it may give up the
    /// old one. A group is then upgraded one replica after the other: it acts as the newest behavior that all its
    /// replicas have, and an ordered request changes that at one position. Critical types whose members changed have
    /// the number of the behavior since which objects are written so ([`object::critical`]).
    const BEHAVIORS: Behaviors = Behaviors::FIRST;

    /// Decodes the ordered bytes of one request. Pure and total. What it returns may share the bytes.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a request of this service. A [`Protocol`] of the same service made them, so
    /// this is corruption, never a client's mistake.
    fn decode(&self, ordered: &Bytes) -> Result<Self::Request, Malformed>;

    /// The bytes from which [`Service::decode`] makes `request`: the reverse of it. Requests that [`Cx::spawn`] and
    /// [`Cx::at`] start have them too, because a request that was started and has not run yet is part of a checkpoint.
    /// The first byte is below 0xf0, as of [`Action::Order`]. [`object::to_bytes`] does it for a request that is
    /// [`object::Summed`], and [`object::from_bytes`] is its `decode`.
    fn encode(&self, request: &Self::Request) -> Vec<u8>;

    /// Declares the locks `request` will take: a superset is correct, a miss costs a [`Retry`]. One that takes none has
    /// the first lock.
    fn footprint(&self, request: &Self::Request, footprint: &mut Footprint);

    /// In verified mode: what the request touches, for the mixer, which lets requests run beside each other that do not
    /// conflict. By default the locks of its `footprint`. Other keys may be finer or coarser than locks. They are a
    /// hint: a conflict that they miss may make replicas differ, and then the batch is rolled back and run one request
    /// at a time; one that they invent costs parallelism. Pure, as [`Service::footprint`].
    fn keys(&self, _request: &Self::Request, footprint: &Footprint, keys: &mut Keys) {
        keys.of_footprint(footprint);
    }

    /// The handler: executes the request and appends to `reply` exactly the bytes that the client gets.
    ///
    /// # Errors
    /// [`Retry`] is returned by a lock outside the footprint; the request is undone and runs again later.
    fn execute(&self, cx: &Cx<'_, Self>, request: &Self::Request, reply: &mut Vec<u8>) -> Result<(), Retry>;

    /// Whether the request only reads, so that [`Service::read`] may answer it without a batch where
    /// the operator has set that ([`crate::Reads`]). Pure, as [`Service::footprint`].
    fn reads_only(&self, _request: &Self::Request) -> bool {
        false
    }

    /// The reply to a request that [only reads](Service::reads_only), from the state between two
    /// batches. Any lock may be taken. Nothing may be changed: what is changed all the same is undone, and the request
    /// is ordered.
    ///
    /// [`now_us`](schedule::Cx::now_us) is the time of the last batch, and does not advance while none is ordered. It
    /// alone may decide what the reply is: the replicas agree on it. `latest_us` is the time that a batch would have
    /// now. If the reply would be another one at that time, because something has expired since, the request needs a
    /// batch.
    ///
    /// # Errors
    /// [`NeedsBatch`] if it has to be ordered after all.
    fn read(
        &self,
        _cx: &Cx<'_, Self>,
        _latest_us: u64,
        _request: &Self::Request,
        _reply: &mut Vec<u8>,
    ) -> Result<(), NeedsBatch> {
        Err(NeedsBatch)
    }

    /// The request by which an operator lists the settings of the group that the service has, or with a name and a
    /// value changes one of them first. Its handler writes a [`crate::SettingsReply`], and keeps the values in
    /// protected objects: the configuration has those of a group that is founded only. No client can send it.
    ///
    /// # Errors
    /// Why there is no such request: the service has no such setting, or it cannot have this value in any state.
    fn settings_request(&self, _change: Option<(&str, &str)>) -> Result<Self::Request, String> {
        Err("this service has no settings that a group can change".to_owned())
    }

    /// Before the service has run a request: its group was founded with these settings, by the names of
    /// [`Settings::founding`](crate::Settings::founding), and not with those of the configuration.
    ///
    /// # Errors
    /// Why it cannot have them.
    fn founded_with(&mut self, _settings: &[(String, String)]) -> Result<(), String> {
        Ok(())
    }

    /// Before the service has run a request: the state that is put in place has so many regions, so the service needs
    /// as many locks. Only a service whose number of locks depends on settings has to follow; it ignores a number that
    /// it cannot have.
    fn take_locks(&mut self, _count: u32) {}

    /// Describes the requests, so that replicas with another set of them are refused in the handshake: by default only
    /// the name of their type. A request with [`object::Summed`] or `#[derive(Shaped)]` needs one line,
    /// `shape.add::<Request>()`.
    fn shape_of_requests(shape: &mut Shape) {
        shape.text(std::any::type_name::<Self::Request>());
    }

    /// Every lock of the service; the index is the lock's number. The derive of [`Locks`] lists them.
    fn locks(&self) -> Vec<&dyn Lock> {
        locks_of(self)
    }

    /// The same locks, while no other thread can reach the service: to load a state that was transferred.
    fn locks_mut(&mut self) -> Vec<&mut dyn Lock> {
        locks_of_mut(self)
    }

    /// A replica's process has ended, and with it these connections of its clients: the request that gives up what the
    /// service keeps for them. It runs at one position at all replicas, and answers no client: when the replica has a
    /// new process, or has sent nothing for [`limits::GONE`](crate::limits::GONE). The end of a single connection is
    /// [`Protocol::closed`]. Pure, and the same kind of answer for all connections.
    fn closed(&self, _connections: ConnectionsOfReplica) -> Option<Self::Request> {
        None
    }

    /// The reply to a request whose handler panicked: equal on every replica, as the panic is. Also the reply to a
    /// request that a single node has undone because it detected a fault (letter T).
    fn panicked(&self, request: &Self::Request, reply: &mut Vec<u8>);

    /// What the service has counted at this replica since it started, by name, for `status`: what clients ask for in
    /// vain, say. It is not part of the state, and differs from replica to replica. At most some dozens.
    fn counts(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// The kind of request, as a small number from 1: with it, evidence can distinguish a bug, which affects one kind,
    /// from a bit flip.
    fn kind(&self, _request: &Self::Request) -> u16 {
        0
    }

    /// The operator's name for a [kind](Service::kind) of request (`get`, `transfer`), for evidence and messages.
    fn kind_name(_kind: u16) -> Option<&'static str> {
        None
    }

    /// Whether data that never changes once the service serves (settings, tables) is unchanged. It is called at every
    /// tick, so it must be short. A replica whose service returns false replaces itself.
    fn is_valid(&self) -> bool {
        true
    }

    /// The operator's name for an object (`item "k"`), for evidence; `None` if it has no name but its id. The bytes are
    /// from a peer: they may be wrong in any way.
    fn name_of(_object: &Members<'_>) -> Option<String> {
        None
    }

    /// What was wrong with an object that has just been repaired, in the words of the service's users (`row 17 of
    /// accounts, its balance`), for the evidence record. It has no part in state or replies. It should be short, in
    /// time too: the object's lock is held meanwhile. If it panics, the record does without it.
    fn explain(_repaired: &RepairedObject<'_>) -> Option<String> {
        None
    }

    /// The lock that protects a named object (`item:KEY`), for the fault injector.
    ///
    /// It depends on the name alone; [`Service::find`] looks up the object itself once the lock is held.
    fn region_id_of(&self, name: &str) -> Option<RegionId>;

    /// The object of that name. It is called while the turn on its lock is held.
    fn find(&self, cx: &Cx<'_, Self>, name: &str) -> Option<ObjectId>;

    /// The part of that object that the name means, for flipped bits whose place is left open; by default all of it.
    fn part_of(&self, _cx: &Cx<'_, Self>, _name: &str) -> Option<ObjectPart> {
        None
    }
}

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPart {
    /// Number of the tracked member.
    pub member: u8,
    /// Bits of its packed bytes.
    pub bits: Range<u64>,
}

/// The locks that the service declares for a request.
pub(crate) fn declared<S: Service>(service: &S, request: &S::Request) -> Footprint {
    let mut footprint = Footprint::new();
    declare(service, request, &mut footprint);
    footprint
}

/// Adds the locks that the service declares for a request. One that needs none has the first lock: else its turn among
/// the requests of the pipeline, such as that which changes what the group acts as, would not follow from the log.
pub(crate) fn declare<S: Service>(service: &S, request: &S::Request, footprint: &mut Footprint) {
    service.footprint(request, footprint);
    if footprint.first().is_none() && !footprint.is_all() {
        footprint.write(0);
    }
}

/// The name of a kind of request in messages and evidence. Kind 0 is that of the pipeline's own requests, and of a
/// service without kinds.
pub(crate) fn kind_in_words<S: Service>(kind: u16) -> Option<String> {
    (kind != 0).then(|| S::kind_name(kind).map_or_else(|| format!("kind {kind}"), str::to_owned))
}

/// What a service can say of its objects.
pub(crate) fn words_of<S: Service>() -> Words {
    Words { name_of: S::name_of, explain: S::explain }
}

/// The action that a connection's bytes request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing that has a reply (an empty line, a skipped block).
    Nothing,
    /// A request for the service, in the service's own encoding; its reply comes from [`Service::execute`]. Its first
    /// byte is below 0xf0: higher ones are for the pipeline's own requests.
    Order(Vec<u8>),
    /// Answered immediately (a syntax error, `version`); sent in its place among the replies.
    Reply(Vec<u8>),
    /// Send these last bytes in their place, then close.
    Close(Vec<u8>),
    /// Send these bytes, and go on with TLS: for protocols whose clients ask for it ([`Protocol::ASKS_FOR_TLS`]), where
    /// [`NewConnection::offers_tls`] says that there is some. A client that has sent more already, or that waits for a
    /// reply, is closed: what came without TLS must not be taken for what comes with it.
    StartTls(Vec<u8>),
}

/// The progress of [`Protocol::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The input ends inside a request; call again with at least this many bytes in all.
    NeedMore(usize),
    /// `used` bytes (at least 1) are consumed.
    Done {
        /// Bytes of the input that were consumed.
        used: usize,
        /// The action that they request.
        action: Action,
    },
}

/// One client connection's protocol. It owns no socket: the pipeline passes the received bytes to it.
///
/// Where requests are decoded twice, each connection has two instances. Each is copied before it decodes, and they are
/// compared afterwards, so both operations should be cheap: an instance has a few words.
pub trait Protocol: Clone + PartialEq + Send + 'static {
    /// Whether a client begins without TLS, and asks for it ([`Action::StartTls`]). Otherwise TLS is there from the
    /// first byte on where the operator has given a certificate.
    const ASKS_FOR_TLS: bool = false;

    /// What a client is told that is not served since there are too many.
    const TOO_MANY_CLIENTS: &'static [u8] = b"ERROR Too many open connections\r\n";

    /// Takes the next step over `input`, the bytes that earlier steps have not consumed. Total: it has a result for any
    /// bytes.
    fn next(&mut self, input: &[u8]) -> Progress;

    /// Where requests are decoded twice: how many bytes at the beginning of `input` are exactly what a client sends to
    /// mean `ordered`, and would be decoded to it in this state and by this configuration. It is the inverse of
    /// [`Protocol::next`] and must not share code with it: it stands for a second decoding. None where that is not so,
    /// or not certain, as for unusual forms of a request; such a request is decoded twice.
    fn rendered(&self, _input: &[u8], _ordered: &[u8]) -> Option<usize> {
        None
    }

    /// Whether the client may ask for something already. One that does not come so far in a minute is closed.
    fn is_let_in(&self) -> bool {
        true
    }

    /// The connection has ended: a request that its state still asks for, to give up what the service keeps for it.
    /// Its reply is discarded. It may get lost, as when the process ends, so what is kept needs a time limit all the
    /// same.
    fn closed(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Bytes, `room` at most, to send to the client although it asked for nothing: news that it has subscribed to. It
    /// is called every now and then, on one of the connection's two instances where there are two, and its answer is
    /// not compared: such bytes are this replica's own word. Not for what the service's state decides.
    fn unsolicited(&mut self, _room: usize) -> Vec<u8> {
        Vec::new()
    }

    /// The approximate number of bytes in the reply to the request that the last [`Protocol::next`] ordered. It only
    /// decides when the request is admitted, so that replies find room in memory. It may be wrong, and may differ from
    /// replica to replica.
    fn reply_bytes(&self) -> usize {
        4096
    }
}

/// What a protocol is told of a connection that was just accepted.
#[derive(Clone, Debug)]
pub struct NewConnection {
    /// Its name, for requests that depend on the connection.
    pub id: ConnectionId,
    /// The other end.
    pub peer: ClientAddress,
    /// The counters of all clients.
    pub counters: Arc<ClientCounters>,
    /// The client may ask for TLS ([`Action::StartTls`]).
    pub offers_tls: bool,
}

/// Makes the [`Protocol`] of each new connection.
pub type MakeProtocol<P> = Arc<dyn Fn(&NewConnection) -> P + Send + Sync>;
