//! One service in three releases, whose types have other members in each. Types in functions have the path of the
//! module, so the classes of the three have equal names, as those of three builds of one program have.

use object::{Ref, Region, Store, Summed, critical, genesis};

use super::REGION_ID;

/// What the three have in common. Jobs are counted from 0.
pub trait Shelf: Region {
    fn add(&mut self, key: u64, delay_s: u32);
    fn remove(&mut self, at: usize);
    fn set_delay(&mut self, at: usize, delay_s: u32);
    fn write(&mut self, at: usize, notes: &[u8]);
    fn see(&mut self, at: usize, now_s: u32);
    fn set_limit(&mut self, limit: u32);
    fn len(&self) -> usize;
    fn delay_us(&self, at: usize) -> u64;
    /// All that a handler can read of a job, and of the settings.
    fn read(&self, at: usize) -> Vec<u64>;
    /// Adds something that the first release does not have.
    fn pin(&mut self, _text: &str) {}
    fn job(&self, at: usize) -> object::ObjectId;
    /// Name, version and what it is made of, of each version of each class.
    fn shapes(&self) -> Vec<(&'static str, u16, u64)>;
}

/// A release: a function, so that its types have the path of this module.
macro_rules! release {
    ($name:ident, { $($items:tt)* }) => {
        fn $name() -> Box<dyn Shelf> {
            $($items)*
        }
    };
}

pub const RELEASES: [fn() -> Box<dyn Shelf>; 3] = [first, second, third];

fn shapes_of<T: Region>() -> Vec<(&'static str, u16, u64)> {
    let mut all = Vec::new();
    T::classes(&mut |class| {
        let of = |class: &object::hidden::Class| {
            let mut shape = object::Shape::default();
            (class.shape)(&mut shape);
            (class.short_name().to_owned().leak() as &'static str, class.version, shape.digest())
        };
        all.extend(class.versions().map(of));
        true
    });
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub struct Span {
    from: u32,
    to: u64,
}

const SPAN: Span = Span { from: 3, to: 4 };

release! { first, {
    #[critical]
    struct Job {
        key: u64,
        delay: u32,
        notes: Vec<u8>,
        #[hot]
        seen_s: u32,
        spare: String,
        span: Span,
    }
    #[critical]
    impl Job {
        fn new(key: u64, delay: u32) -> Self {
            Self { key, delay, notes: Vec::new(), seen_s: 0, spare: "spare".to_owned(), span: SPAN }
        }
        fn set_delay(&mut self, seconds: u32) {
            self.delay = seconds;
            self.spare.push('x');
        }
        fn write(&mut self, notes: &[u8]) {
            self.notes = notes.to_vec();
        }
        #[hot]
        fn see(&mut self, now_s: u32) {
            *self.seen_s = now_s;
        }
        fn read(&self) -> Vec<u64> {
            vec![self.key, u64::from(self.delay) * 1_000_000, self.notes.len() as u64, u64::from(self.seen_s)]
        }
    }
    #[critical(copy)]
    struct Settings {
        limit: u32,
    }
    #[critical]
    impl Settings {
        fn new() -> Self {
            Self { limit: 7 }
        }
        fn set(&mut self, limit: u32) {
            self.limit = limit;
        }
        fn read(&self) -> u64 {
            u64::from(self.limit)
        }
    }
    #[critical]
    struct Root {
        name: String,
        settings: Settings,
        jobs: Store<Job>,
        order: Vec<Ref<Job>>,
    }
    #[critical]
    impl Root {
        fn new() -> Self {
            Self {
                name: "shelf".to_owned(),
                settings: Settings::new(),
                jobs: Store::new(),
                order: Vec::new(),
            }
        }
    }
    #[critical]
    impl Shelf for Root {
        fn add(&mut self, key: u64, delay_s: u32) {
            let job = self.jobs.insert(Job::new(key, delay_s));
            self.order.push(job);
        }
        fn remove(&mut self, at: usize) {
            let gone = self.order.remove(at);
            self.jobs.expect_remove(gone);
        }
        #[through]
        fn set_delay(&mut self, at: usize, delay_s: u32) {
            self.jobs.expect_mut(self.order[at]).set_delay(delay_s);
        }
        #[through]
        fn write(&mut self, at: usize, notes: &[u8]) {
            self.jobs.expect_mut(self.order[at]).write(notes);
        }
        #[through]
        fn see(&mut self, at: usize, now_s: u32) {
            self.jobs.expect_mut(self.order[at]).see(now_s);
        }
        fn set_limit(&mut self, limit: u32) {
            self.settings.set(limit);
        }
        fn len(&self) -> usize {
            self.order.len()
        }
        fn delay_us(&self, at: usize) -> u64 {
            self.jobs.expect(self.order[at]).read()[1]
        }
        fn read(&self, at: usize) -> Vec<u64> {
            let mut read = self.jobs.expect(self.order[at]).read();
            read.push(self.settings.read());
            read
        }
        fn job(&self, at: usize) -> object::ObjectId {
            self.order[at].id()
        }
        fn shapes(&self) -> Vec<(&'static str, u16, u64)> {
            shapes_of::<Root>()
        }
    }
    Box::new(genesis(REGION_ID, Root::new))
}}

// A member has come, one has gone, one has another name, and two have another type.
release! { second, {
    #[critical(version = 2)]
    struct Job {
        #[since(2, default = self.first_weight())]
        weight: u32,
        #[renamed(2, from = "key")]
        id: u64,
        #[until(2)]
        #[renamed(2, from = "delay")]
        delay_s: u32,
        #[since(2, default = micros(self.delay_s))]
        delay: u64,
        notes: Vec<u8>,
        #[hot]
        seen_s: u32,
        #[until(2)]
        spare: String,
        #[until(2)]
        #[renamed(2, from = "span")]
        old_span: Span,
        #[since(2, default = (u64::from(self.old_span.from), self.old_span.to))]
        span: (u64, u64),
    }
    #[critical]
    impl Job {
        fn new(id: u64, delay_s: u32) -> Self {
            Self {
                weight: 10,
                id,
                delay_s,
                delay: micros(delay_s),
                notes: Vec::new(),
                seen_s: 0,
                spare: "spare".to_owned(),
                old_span: SPAN,
                span: (3, 4),
            }
        }
        fn first_weight(&self) -> u32 {
            self.notes.len() as u32 + 1
        }
        fn set_delay(&mut self, seconds: u32) {
            if self.stored_version() < 2 {
                self.delay_s = seconds;
                self.spare.push('x');
            } else {
                self.delay = micros(seconds);
                self.weight += 1;
            }
        }
        fn write(&mut self, notes: &[u8]) {
            self.notes = notes.to_vec();
        }
        #[hot]
        fn see(&mut self, now_s: u32) {
            *self.seen_s = now_s;
        }
        fn read(&self) -> Vec<u64> {
            let delay = if self.stored_version() < 2 { micros(self.delay_s) } else { self.delay };
            vec![
                self.id,
                delay,
                self.notes.len() as u64,
                u64::from(self.seen_s),
                u64::from(self.weight),
                self.span.1,
            ]
        }
    }
    #[critical(copy, version = 2)]
    struct Settings {
        limit: u32,
        #[since(2, default = self.limit.wrapping_mul(2))]
        burst: u32,
    }
    #[critical]
    impl Settings {
        fn new() -> Self {
            Self { limit: 7, burst: 14 }
        }
        fn set(&mut self, limit: u32) {
            self.limit = limit;
        }
        fn read(&self) -> u64 {
            u64::from(self.limit) << 32 | u64::from(self.burst)
        }
    }
    #[critical(since = 2)]
    struct Pin {
        text: String,
    }
    #[critical]
    impl Pin {
        fn new(text: &str) -> Self {
            Self { text: text.to_owned() }
        }
    }
    #[critical(version = 2)]
    struct Root {
        name: String,
        settings: Settings,
        #[since(2)]
        pins: Store<Pin>,
        jobs: Store<Job>,
        order: Vec<Ref<Job>>,
    }
    #[critical]
    impl Root {
        fn new() -> Self {
            Self {
                name: "shelf".to_owned(),
                settings: Settings::new(),
                pins: Store::new(),
                jobs: Store::new(),
                order: Vec::new(),
            }
        }
    }
    #[critical]
    impl Shelf for Root {
        fn add(&mut self, key: u64, delay_s: u32) {
            let job = self.jobs.insert(Job::new(key, delay_s));
            self.order.push(job);
        }
        fn remove(&mut self, at: usize) {
            let gone = self.order.remove(at);
            self.jobs.expect_remove(gone);
        }
        #[through]
        fn set_delay(&mut self, at: usize, delay_s: u32) {
            self.jobs.expect_mut(self.order[at]).set_delay(delay_s);
        }
        #[through]
        fn write(&mut self, at: usize, notes: &[u8]) {
            self.jobs.expect_mut(self.order[at]).write(notes);
        }
        #[through]
        fn see(&mut self, at: usize, now_s: u32) {
            self.jobs.expect_mut(self.order[at]).see(now_s);
        }
        fn set_limit(&mut self, limit: u32) {
            self.settings.set(limit);
        }
        fn len(&self) -> usize {
            self.order.len()
        }
        fn delay_us(&self, at: usize) -> u64 {
            self.jobs.expect(self.order[at]).read()[1]
        }
        fn read(&self, at: usize) -> Vec<u64> {
            let mut read = self.jobs.expect(self.order[at]).read();
            read.extend([self.settings.read(), self.pins.len() as u64]);
            read
        }
        fn pin(&mut self, text: &str) {
            self.pins.insert(Pin::new(text));
        }
        fn job(&self, at: usize) -> object::ObjectId {
            self.order[at].id()
        }
        fn shapes(&self) -> Vec<(&'static str, u16, u64)> {
            shapes_of::<Root>()
        }
    }
    Box::new(genesis(REGION_ID, Root::new))
}}

// One more member has come, which follows from one that came in the release before.
release! { third, {
    #[critical(version = 3)]
    struct Job {
        /// Of one that comes behind it, it sees no value.
        #[since(3, default = self.due)]
        early: u64,
        #[since(3, default = u64::from(self.delay_s))]
        first_delay: u64,
        #[since(2, default = self.first_weight())]
        weight: u32,
        #[renamed(2, from = "key")]
        id: u64,
        #[until(2)]
        #[renamed(2, from = "delay")]
        delay_s: u32,
        #[since(2, default = micros(self.delay_s))]
        delay: u64,
        notes: Vec<u8>,
        #[since(3, default = self.delay.wrapping_add(1))]
        due: u64,
        #[hot]
        seen_s: u32,
        #[until(2)]
        spare: String,
        #[until(2)]
        #[renamed(2, from = "span")]
        old_span: Span,
        #[since(2, default = (u64::from(self.old_span.from), self.old_span.to))]
        #[until(3)]
        span: (u64, u64),
    }
    #[critical]
    impl Job {
        fn first_weight(&self) -> u32 {
            self.notes.len() as u32 + 1
        }
        fn set_delay(&mut self, seconds: u32) {
            self.delay = micros(seconds);
        }
        fn delay_us(&self) -> u64 {
            if self.stored_version() < 2 { micros(self.delay_s) } else { self.delay }
        }
        fn read(&self) -> Vec<u64> {
            vec![self.id, self.due, u64::from(self.weight), self.early, self.first_delay]
        }
    }
    #[critical(copy, version = 2)]
    struct Settings {
        limit: u32,
        #[since(2, default = self.limit.wrapping_mul(2))]
        burst: u32,
    }
    #[critical(since = 2)]
    struct Pin {
        text: String,
    }
    #[critical(version = 2)]
    struct Root {
        name: String,
        settings: Settings,
        #[since(2)]
        pins: Store<Pin>,
        jobs: Store<Job>,
        order: Vec<Ref<Job>>,
    }
    #[critical]
    impl Settings {
        fn new() -> Self {
            Self { limit: 7, burst: 14 }
        }
    }
    #[critical]
    impl Root {
        fn new() -> Self {
            Self {
                name: "shelf".to_owned(),
                settings: Settings::new(),
                pins: Store::new(),
                jobs: Store::new(),
                order: Vec::new(),
            }
        }
    }
    #[critical]
    impl Shelf for Root {
        fn add(&mut self, _key: u64, _delay_s: u32) {}
        fn remove(&mut self, _at: usize) {}
        #[through]
        fn set_delay(&mut self, at: usize, delay_s: u32) {
            self.jobs.expect_mut(self.order[at]).set_delay(delay_s);
        }
        fn write(&mut self, _at: usize, _notes: &[u8]) {}
        fn see(&mut self, _at: usize, _now_s: u32) {}
        fn set_limit(&mut self, _limit: u32) {}
        fn len(&self) -> usize {
            self.order.len()
        }
        fn delay_us(&self, at: usize) -> u64 {
            self.jobs.expect(self.order[at]).delay_us()
        }
        fn read(&self, at: usize) -> Vec<u64> {
            self.jobs.expect(self.order[at]).read()
        }
        fn job(&self, at: usize) -> object::ObjectId {
            self.order[at].id()
        }
        fn shapes(&self) -> Vec<(&'static str, u16, u64)> {
            shapes_of::<Root>()
        }
    }
    Box::new(genesis(REGION_ID, Root::new))
}}

fn micros(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000
}
