//! The scope of one request on one thread: the objects that it has entered, and their before-images.
//!
//! An object is checked when a request first enters it and summed again once, when the request ends
//! (docs/design.md, section 3). Everything in between goes through [`known`], a comparison with the objects that
//! were entered last.
//!
//! **Why the paper's per-call checksums, last-leaver counter and wildcard entries are not needed.** EDCC'16 sections
//! IV-A and V-B need them because C++ threads may enter one object at the same time without a lock, so that "before
//! this call" and "after that call" are not points in time all replicas share. Here a method with `&mut self` proves
//! that no other thread is in the object, and one with `&self` that no thread changes a summed member: `Summed` has no
//! implementation for cells, atomics or locks. Regions are reached through ordered turns only, so the end of a
//! request, before it gives up its turn, is the same point of every object's history on every replica. The scope is
//! thread-local because a request runs on one thread; readers that share a region each note the object for
//! themselves, and neither writes to it.

use crate::acting;
use crate::any::AnyObject;
use crate::checksum::UNSEALED;
use crate::class::Class;
use crate::corrupted::Corrupted;
use crate::delta::{Pair, Touched};
use crate::exempt;
use crate::header::Header;
use crate::id::{ObjectId, RegionId};
use crate::kept::Kept;
use crate::ledger::{Entry, EntryState, Gone, Ledger, Opened, Undo, UndoImage};
use crate::lent;
use crate::package;
use crate::parts::Located;
use crate::place::StorePlace;
use crate::walk;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a request does with checksums of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protect {
    /// Nothing: an object that it changes has no checksum until another request seals it.
    Nothing,
    /// What it changed is sealed and noted at the end; what it reads is neither checked nor noted (the mode `R00V`).
    Seal,
    /// Objects are also checked at first touch, and all that were touched are noted (the letter G of a mode).
    Check,
}

/// The options of a request's scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeOptions {
    /// Dispatch position of the request: the ids of objects it creates begin with it.
    pub position: u64,
    /// What happens to objects beside being used.
    pub protect: Protect,
    /// Keep each object as it was before its first change, so that [`crate::Region::undo`] can restore it.
    pub keep_before_images: bool,
}

/// Objects with the checksums that a request found.
pub type Found = SmallVec<[(ObjectId, u64); Touched::INLINE]>;

/// Objects are checked, and all that are touched are noted.
const CHECK: u8 = 1;
/// Objects that change are noted and sealed.
const SEAL: u8 = 8;
/// Before-images are kept.
const IMAGES: u8 = 2;
/// A scope is open.
const ACTIVE: u8 = 4;
/// Before-images are of whole objects.
const WHOLE: u8 = 16;
/// A walk over a region is under way, with all checks off.
const WALK: u8 = 32;

/// The state that every entry into an object reads: small, without a destructor, and therefore cheap to reach.
struct ScopeState {
    flags: Cell<u8>,
    /// The objects that were entered last. A request goes to and fro between few: a root and one thing inside of it.
    entered: [Entered; REMEMBERED],
    /// Which of them is forgotten next.
    oldest: Cell<u8>,
    position: Cell<u64>,
    counter: Cell<u32>,
    /// Objects created outside of any request: in tests only.
    outside: Cell<u16>,
    /// Packed bytes stay on this replica, so that references may carry their hints.
    local: Cell<bool>,
}

/// Objects that are recognised without asking the ledger.
const REMEMBERED: usize = 4;

/// An object that was entered: no object lies at address 0.
struct Entered {
    address: Cell<usize>,
    id: Cell<u64>,
    opened: Cell<Opened>,
}

impl Entered {
    const fn none() -> Self {
        Entered { address: Cell::new(0), id: Cell::new(0), opened: Cell::new(Opened::No) }
    }
}

thread_local! {
    static SCOPE: ScopeState = const {
        ScopeState {
            flags: Cell::new(0),
            entered: [const { Entered::none() }; REMEMBERED],
            oldest: Cell::new(0),
            position: Cell::new(0),
            counter: Cell::new(0),
            outside: Cell::new(0),
            local: Cell::new(false),
        }
    };
    static LEDGER: RefCell<Ledger> = const { RefCell::new(Ledger::new()) };
}

static LOCALLY_REPAIRED: AtomicU64 = AtomicU64::new(0);

/// Opens the scope of a request on this thread.
///
/// # Panics
///
/// If a scope is open already: requests do not nest.
pub fn begin(options: ScopeOptions) {
    SCOPE.with(|scope| {
        assert!(scope.flags.get() & ACTIVE == 0, "a request begins while another is running on this thread");
        let mut flags = ACTIVE;
        flags |= match options.protect {
            Protect::Nothing => 0,
            Protect::Seal => SEAL,
            Protect::Check => CHECK | SEAL,
        };
        flags |= if options.keep_before_images && exempt::keeps_before_images() { IMAGES } else { 0 };
        scope.flags.set(flags);
        scope.forget();
        scope.position.set(options.position);
        scope.counter.set(0);
    });
    acting::forget();
}

/// The open request runs while its group acts as this behavior of its service: what it creates or changes is written in
/// the version of that time ([`critical`](crate::critical)). Without this, and outside of a request, in the newest one.
pub fn act_as(behavior: u16) {
    if SCOPE.with(|scope| scope.flags.get() & ACTIVE != 0) {
        acting::set(behavior);
    }
}

/// As [`begin`], with before-images of whole objects, also where only hot members change. A request that is kept beyond
/// its end by [`finish_keeping`] needs them, because others may ask for the objects as they were; and one that is run
/// again to mask a fault: to undo it also rolls back an error in the other members that came before its seal.
///
/// # Panics
///
/// As [`begin`].
pub fn begin_with_whole_images(options: ScopeOptions) {
    begin(options);
    SCOPE.with(|scope| scope.flags.set(scope.flags.get() | WHOLE));
}

/// Closes the scope and returns the state delta. Every region that the request held must have been sealed (or noted,
/// if it was held for reading) before.
///
/// Without an open scope the delta is empty.
pub fn finish() -> Touched {
    let touched = so_far();
    abandon();
    touched
}

/// Closes the scope, opened by [`begin_with_whole_images`], as [`finish`] does, and keeps what takes the request back.
/// `room` is one that is no longer needed, whose buffers are used again.
pub fn finish_keeping(room: Kept) -> (Touched, Kept) {
    debug_assert!(
        SCOPE.with(|scope| scope.flags.get() & WHOLE != 0),
        "the request's scope was opened to be kept"
    );
    let touched = so_far();
    let position = SCOPE.with(|scope| scope.position.get());
    let mut kept = room;
    kept.ledger.clear();
    LEDGER.with(|ledger| {
        let mut ledger = ledger.borrow_mut();
        std::mem::swap(&mut *ledger, &mut kept.ledger);
    });
    kept.forget_outside(position);
    close();
    (touched, kept)
}

/// The state delta as [`finish`] would return it now, while the scope stays open: a request that was sealed can still
/// be undone.
pub fn so_far() -> Touched {
    let mut touched = Touched::default();
    if seals() {
        LEDGER.with(|ledger| touched.fill(&ledger.borrow().entries));
    }
    touched
}

/// The checksums that the request found at its first touch of objects that it did not create, in the order of these
/// touches. A request that is run again after it was undone finds the same ones.
pub fn found() -> Found {
    let found = |entry: &Entry| (entry.found != UNSEALED).then_some((entry.id, entry.found));
    LEDGER.with(|ledger| ledger.borrow().entries.iter().filter_map(found).collect())
}

/// Shows the objects that the request has changed, created or removed, and the regions that they were or are in; all
/// regions that it held must have been sealed. Some are shown twice, and some that have not changed; equal at all
/// replicas. For a copy that is being made ([`crate::RegionCopy::on_changed`]).
pub fn changed_objects(visit: &mut dyn FnMut(RegionId, Located)) {
    LEDGER.with(|ledger| ledger.borrow().changed(visit));
}

/// Whether every effect of the request was rolled back, by [`crate::Region::undo`] of all its regions.
pub fn is_undone() -> bool {
    LEDGER.with(|ledger| ledger.borrow().undo.is_empty())
}

/// Closes the scope and discards its notes: the end of a request that was undone or abandoned.
pub fn abandon() {
    LEDGER.with(|ledger| ledger.borrow_mut().clear());
    lent::clear();
    close();
}

/// Objects that the open request has changed and that are not sealed yet: targets for a fault injector before the seal.
#[cfg(feature = "inject")]
pub fn changed() -> Vec<ObjectId> {
    let open = |entry: &&Entry| entry.state.is_open();
    LEDGER.with(|ledger| ledger.borrow().entries.iter().filter(open).map(|entry| entry.id).collect())
}

/// Flips a bit, chosen by `seed`, of the before-images that the open request has kept; `false` when it has kept none.
#[cfg(feature = "inject")]
pub fn damage_images(seed: u64) -> bool {
    // What an image refers to is half of the target, where there is such a value.
    if seed % 2 == 1 && lent::flip(seed / 2) {
        return true;
    }
    LEDGER.with(|ledger| ledger.borrow_mut().damage_images(seed))
}

/// Loses the newest step of the undo log; `false` when there is none.
#[cfg(feature = "inject")]
pub fn lose_undo_step() -> bool {
    LEDGER.with(|ledger| ledger.borrow_mut().undo.pop().is_some())
}

/// Whether a scope is open on this thread.
pub fn active() -> bool {
    SCOPE.with(|scope| scope.flags.get() & ACTIVE != 0)
}

/// Name for the next object that the current request creates. Outside of a request: a name that is unique on this
/// thread for its next 65,536 objects, for tests.
///
/// # Panics
///
/// If one request creates more than 65,536 objects; all replicas do so alike.
pub fn new_id() -> ObjectId {
    SCOPE.with(|scope| {
        if scope.flags.get() & ACTIVE == 0 {
            let counter = scope.outside.get();
            scope.outside.set(counter.wrapping_add(1));
            return ObjectId::new(ObjectId::OUTSIDE, counter);
        }
        let counter = scope.counter.get();
        scope.counter.set(counter + 1);
        match u16::try_from(counter) {
            Ok(counter) => ObjectId::new(scope.position.get(), counter),
            Err(_) => panic!("one request creates more than 65,536 objects"),
        }
    })
}

/// Runs the construction of a region's root, so that the objects it is born with have names that are equal on all
/// replicas, and seals them.
///
/// ```
/// # use object::{critical, genesis};
/// #[critical]
/// struct Counter { value: u64 }
/// #[critical]
/// impl Counter {
///     fn new() -> Self { Self { value: 0 } }
/// }
/// let counter = genesis(7, Counter::new);
/// assert_eq!(counter.object_id().to_string(), "g7.0");
/// ```
///
/// # Panics
///
/// If a request is open on this thread.
pub fn genesis<T: crate::Region>(region_id: RegionId, construct: impl FnOnce() -> T) -> T {
    begin(ScopeOptions {
        position: ObjectId::genesis_position(region_id),
        protect: Protect::Check,
        keep_before_images: false,
    });
    // Every group begins with the first behavior, whatever its builds know.
    act_as(Class::FIRST);
    let closing = Closing;
    let mut root = construct();
    // Not `seal`: the root has moved since its objects were noted.
    root.seal_unsealed();
    drop(closing);
    root
}

/// How many objects with a local copy were repaired on the spot, by all threads since the start of the process.
pub fn locally_repaired() -> u64 {
    LOCALLY_REPAIRED.load(Ordering::Relaxed)
}

pub(crate) fn count_local_repair() {
    LOCALLY_REPAIRED.fetch_add(1, Ordering::Relaxed);
}

/// Whether a read of the object needs nothing more: it is among those entered last, or checks are off.
#[inline]
pub(crate) fn known(header: &Header) -> bool {
    SCOPE.with(|scope| scope.flags.get() & CHECK == 0 || scope.find(header).is_some())
}

/// Whether a change of `what` in the object needs nothing more.
#[inline]
pub(crate) fn known_open(header: &mut Header, what: Opened) -> bool {
    SCOPE.with(|scope| {
        if scope.flags.get() & (SEAL | IMAGES) == 0 {
            // Changed while checksums are off: the next request that checks must not compare with the old checksum.
            header.unseal();
            true
        } else {
            scope.find(header).is_some_and(|entered| entered.opened.get() >= what)
        }
    })
}

/// Whether the hot members of the object can be opened alone.
pub(crate) fn can_open_hot(header: &Header) -> bool {
    let flags = SCOPE.with(|scope| scope.flags.get());
    flags & WHOLE == 0 && (flags & SEAL == 0 || header.is_sealed())
}

impl ScopeState {
    #[inline]
    fn find(&self, header: &Header) -> Option<&Entered> {
        let (address, id) = (header.address(), header.id().to_bits());
        self.entered.iter().find(|entered| entered.address.get() == address && entered.id.get() == id)
    }

    fn remember(&self, header: &Header, opened: Opened) {
        self.set(self.find(header).unwrap_or_else(|| self.oldest()), header, opened);
    }

    /// The same of an object that is not among them.
    fn remember_new(&self, header: &Header) {
        self.set(self.oldest(), header, Opened::No);
    }

    fn oldest(&self) -> &Entered {
        let oldest = usize::from(self.oldest.get()) % REMEMBERED;
        self.oldest.set(oldest as u8 + 1);
        &self.entered[oldest]
    }

    fn set(&self, entered: &Entered, header: &Header, opened: Opened) {
        entered.address.set(header.address());
        entered.id.set(header.id().to_bits());
        entered.opened.set(opened);
    }

    fn forget(&self) {
        self.entered.iter().for_each(|entered| entered.address.set(0));
    }
}

/// Whether a store need not note where the object lies before it is changed.
#[inline]
pub(crate) fn known_placed(header: &Header) -> bool {
    SCOPE.with(|scope| scope.flags.get() & (SEAL | IMAGES) == 0 || scope.find(header).is_some())
}

/// Whether objects are compared with their checksums.
#[inline]
pub(crate) fn checks() -> bool {
    SCOPE.with(|scope| scope.flags.get() & CHECK != 0)
}

/// Whether the pieces of a long value get sums. A request that seals nothing leaves them out; walks and whatever is
/// outside of a request do not.
pub(crate) fn sums_pieces() -> bool {
    let flags = SCOPE.with(|scope| scope.flags.get());
    flags & ACTIVE == 0 || flags & (SEAL | WALK) != 0
}

/// Runs `work`, which packs a before-image of the open request: it may refer to long values instead of copying them,
/// unless the request is one whose images have to be whole.
fn image<R>(flags: u8, work: impl FnOnce() -> R) -> R {
    if flags & WHOLE == 0 { lent::lending(|| locally(work)) } else { locally(work) }
}

/// Whether objects that change are sealed.
fn seals() -> bool {
    SCOPE.with(|scope| scope.flags.get() & SEAL != 0)
}

/// Runs `work` with references packing (or reading) their hints: for bytes that stay on this replica.
pub(crate) fn locally<R>(work: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            SCOPE.with(|scope| scope.local.set(self.0));
        }
    }
    let _reset = Reset(SCOPE.with(|scope| scope.local.replace(true)));
    work()
}

/// Whether packed bytes stay on this replica.
pub(crate) fn is_local() -> bool {
    SCOPE.with(|scope| scope.local.get())
}

/// Enters an object: notes it, unless the request has entered it before. Where objects are checked, `fits` compares a
/// sealed one with its checksum. Returns false if it does not fit.
///
/// A `sealed` object found at another place than before is entered again: either it moved, or a damaged id makes one
/// look like another.
pub(crate) fn enter(header: &Header, place: Option<StorePlace>, fits: impl FnOnce() -> bool) -> bool {
    LEDGER.with(|ledger| {
        let ledger = &mut *ledger.borrow_mut();
        let noted = ledger.position(header.id());
        if let Some(number) = noted {
            let entry = &mut ledger.entries[number];
            if entry.address == header.address() || entry.state != EntryState::Read {
                entry.address = header.address();
                SCOPE.with(|scope| scope.remember(header, entry.may_change()));
                return true;
            }
        }
        if checks() && header.is_sealed() && !fits() {
            return false;
        }
        let mut entry = Entry {
            id: header.id(),
            address: header.address(),
            place,
            region_id: None,
            sum: header.sum(),
            found: header.sum(),
            state: if header.is_sealed() { EntryState::Read } else { EntryState::Open },
            opened: Opened::No,
        };
        match noted {
            Some(number) => {
                let known = &mut ledger.entries[number];
                (entry.found, entry.place) = (known.found, place.or(known.place));
                *known = entry;
                SCOPE.with(|scope| scope.remember(header, Opened::No));
            }
            None => {
                ledger.add(entry);
                SCOPE.with(|scope| scope.remember_new(header));
            }
        }
        true
    })
}

/// Marks an object, noted before if objects are checked, as changed by the request: only its hot members, which are
/// `hot` now, or all of it. If the options ask for its before-image and none was kept, it is kept; `pack` appends that
/// of a whole object to the others. Returns whether the object is sealed at the end of the request: if not, its
/// checksum has to go.
pub(crate) fn open(header: &Header, hot: Option<u64>, pack: impl FnOnce(&mut Vec<u8>)) -> bool {
    let (flags, position) = SCOPE.with(|scope| (scope.flags.get(), scope.position.get()));
    let wanted = if hot.is_some() { Opened::Hot } else { Opened::Whole };
    let may_change = LEDGER.with(|ledger| {
        let ledger = &mut *ledger.borrow_mut();
        let entry = ledger.find_or_insert(header.id());
        let before = entry.opened;
        if before == Opened::No && entry.found == UNSEALED {
            // Where objects are not checked, nothing has noted it before.
            entry.found = header.sum();
        }
        let place = entry.place;
        entry.address = header.address();
        entry.opened = before.max(wanted);
        entry.state = match (entry.state, hot) {
            (EntryState::Read, Some(words)) => EntryState::Hot(words),
            // The entry was made just now: nothing has noted the object before, and its checksum stands.
            (EntryState::Open, Some(words)) if before == Opened::No => EntryState::Hot(words),
            (EntryState::Read | EntryState::Hot(_), None) => EntryState::Open,
            (state, _) => state,
        };
        let may_change = entry.may_change();
        // An object that the request has created and put nowhere yet vanishes with it: there is nothing to put back.
        let is_new = header.sum() == UNSEALED && header.id().position() == position;
        if before < wanted && flags & IMAGES != 0 && !is_new {
            let image = || ledger.pack_image(|images| image(flags, || pack(images)));
            let before = hot.map_or_else(image, UndoImage::Hot);
            ledger.undo.push(Undo::Changed { id: header.id(), place, before, sum: header.sum() });
        }
        may_change
    });
    SCOPE.with(|scope| scope.remember(header, may_change));
    flags & SEAL != 0
}

/// A new object has another name from now on.
pub(crate) fn renamed(from: ObjectId, to: ObjectId) {
    LEDGER.with(|ledger| ledger.borrow_mut().rename(from, to));
    SCOPE.with(ScopeState::forget);
}

/// Notes that an object entered a store. Stores inside of it lie elsewhere now.
pub(crate) fn inserted(object: &dyn AnyObject, place: StorePlace) {
    let flags = SCOPE.with(|scope| scope.flags.get());
    if flags & (SEAL | IMAGES) == 0 {
        return;
    }
    let header = object.header();
    LEDGER.with(|ledger| {
        let mut ledger = ledger.borrow_mut();
        let entry = ledger.find_or_insert(header.id());
        entry.address = header.address();
        let left = entry.place.replace(place).filter(|left| left.store != place.store);
        entry.state = EntryState::Open;
        entry.opened = Opened::Whole;
        ledger.left.extend(left.map(|left| (left.store, None)));
        walk::places_inside(object, &mut |id, place| {
            if let Some(entry) = ledger.find_mut(id) {
                entry.place = Some(place);
            }
        });
        if flags & IMAGES != 0 {
            ledger.undo.push(Undo::Inserted { id: header.id(), place });
            if !ledger.gone.is_empty() {
                walk::every(object, &mut |object| ledger.bring_back(object.header().id()), &mut |_, _| {});
            }
        }
    });
    SCOPE.with(|scope| scope.remember(header, Opened::Whole));
}

/// Notes that an object, which still lies in its store, is about to leave it, with the objects inside of it.
pub(crate) fn removed(object: &dyn AnyObject, place: StorePlace) {
    let flags = SCOPE.with(|scope| scope.flags.get());
    if flags & (SEAL | IMAGES) == 0 {
        return;
    }
    let header = object.header();
    // Not into the ledger at once: to pack it may unwind, and the images so far must still be there then.
    let (mut body, mut packed) = (Vec::new(), Vec::new());
    if flags & IMAGES != 0 {
        image(flags, || object.pack_image(&mut body));
        packed = locally(|| package::pack_inside(object));
    }
    LEDGER.with(|ledger| {
        let mut ledger = ledger.borrow_mut();
        if flags & IMAGES != 0 {
            let image = ledger.keep(&body);
            let first = ledger.gone.len();
            for (id, sum, bytes) in packed {
                let image = ledger.keep(&bytes);
                ledger.gone.push(Gone { id, sum, owner: header.id(), image, is_back: false });
            }
            walk::stores_inside(object, &mut |store| ledger.gone_stores.push((store, header.id())));
            let inside = first..ledger.gone.len();
            ledger.undo.push(Undo::Removed { id: header.id(), place, image, sum: header.sum(), inside });
        }
        let entry = ledger.find_or_insert(header.id());
        entry.place = Some(place);
        entry.state = EntryState::Removed;
        entry.opened = Opened::Whole;
        entry.sum = Pair::REMOVED;
    });
    SCOPE.with(ScopeState::forget);
}

/// Leaves the request at this replica: the object cannot be trusted. Unwinds without the message of a panic.
#[cold]
pub(crate) fn fail(corrupted: Corrupted) -> ! {
    std::panic::resume_unwind(Box::new(corrupted))
}

/// All checks are off while this exists: a seal or an undo reads members directly.
struct ChecksOff {
    flags: u8,
}

impl ChecksOff {
    fn new() -> Self {
        ChecksOff { flags: SCOPE.with(|scope| scope.flags.replace(scope.flags.get() & ACTIVE | WALK)) }
    }
}

impl Drop for ChecksOff {
    fn drop(&mut self) {
        SCOPE.with(|scope| {
            scope.flags.set(self.flags);
            // After a seal nothing is open any more: a further write must be noted again.
            scope.forget();
        });
    }
}

/// Lets `work` seal with the ledger, if objects that change are sealed. It must not enter an object: checks are off.
pub(crate) fn with_open_ledger(work: impl FnOnce(&mut Ledger)) {
    let off = ChecksOff::new();
    if off.flags & SEAL != 0 {
        LEDGER.with(|ledger| work(&mut ledger.borrow_mut()));
    }
}

/// The ledger, taken out for a walk over a region that may need buffers of this thread, with all checks off.
pub(crate) struct Taken {
    pub(crate) ledger: Ledger,
    /// Whether objects that change are sealed.
    pub(crate) seals: bool,
    _off: ChecksOff,
}

impl Taken {
    pub(crate) fn new() -> Self {
        let off = ChecksOff::new();
        let ledger = LEDGER.with(|ledger| std::mem::replace(&mut *ledger.borrow_mut(), Ledger::new()));
        Taken { ledger, seals: off.flags & SEAL != 0, _off: off }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        LEDGER.with(|ledger| std::mem::swap(&mut *ledger.borrow_mut(), &mut self.ledger));
    }
}

/// Closes the scope of [`genesis`] also when the construction panics.
struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        abandon();
    }
}

fn close() {
    SCOPE.with(|scope| {
        scope.flags.set(0);
        scope.forget();
    });
    acting::forget();
}
