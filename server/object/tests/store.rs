//! Ways over a whole store and to two of its objects, and how a scrub shows objects that are too large.

use object::{
    Injection, Large, ObjectId, Pair, Pieces, Ref, Region, ScopeOptions, ScrubFinding, Store, Touched,
    critical, genesis, request,
};

#[critical]
struct Account {
    balance: u64,
}

#[critical]
impl Account {
    fn new(balance: u64) -> Self {
        Self { balance }
    }
    fn balance(&self) -> u64 {
        self.balance
    }
}

#[critical]
struct Bank {
    accounts: Store<Account>,
    notes: Vec<u8>,
    numbers: Vec<u64>,
    value: Pieces,
}

#[critical]
impl Bank {
    fn new() -> Self {
        Self { accounts: Store::new(), notes: Vec::new(), numbers: Vec::new(), value: Pieces::from(&[][..]) }
    }
    fn open(&mut self, balance: u64) -> Ref<Account> {
        self.accounts.insert(Account::new(balance))
    }
    fn close(&mut self, account: Ref<Account>) {
        self.accounts.expect_remove(account);
    }
    /// How many of these there are, by their names alone.
    fn count_of(&self, accounts: &[Ref<Account>]) -> usize {
        accounts.iter().filter(|account| self.accounts.contains(Ref::to(account.id()))).count()
    }
    fn balances(&self) -> Vec<u64> {
        self.accounts.iter().map(|(_, account)| account.balance()).collect()
    }
    fn keep_above(&mut self, balance: u64) {
        self.accounts.retain(|_, account| account.balance() > balance);
    }
    fn note(&mut self, notes: Vec<u8>, numbers: Vec<u64>, value: &[u8]) {
        (self.notes, self.numbers, self.value) = (notes, numbers, Pieces::from(value));
    }
}

fn run<T>(bank: &mut Bank, position: u64, work: impl FnOnce(&mut Bank) -> T) -> (T, Touched) {
    request::begin(ScopeOptions { position, protect: request::Protect::Check, keep_before_images: true });
    let result = work(bank);
    bank.seal(0);
    (result, request::finish())
}

/// A bank whose accounts lie in another order than that of their ids, in two chunks of the store.
fn bank() -> (Bank, Vec<Ref<Account>>) {
    let mut bank = genesis(0, Bank::new);
    let (mut all, _) =
        run(&mut bank, 1, |bank| (0..300).map(|balance| bank.open(balance)).collect::<Vec<_>>());
    run(&mut bank, 2, |bank| all.drain(1..298).for_each(|account| bank.close(account)));
    run(&mut bank, 3, |bank| all.push(bank.open(7)));
    (bank, all)
}

#[test]
fn a_store_is_walked_in_the_order_of_ids() {
    let (mut bank, all) = bank();
    let (balances, touched) = run(&mut bank, 4, |bank| bank.balances());
    assert_eq!(balances, [0, 298, 299, 7]);
    assert_eq!(touched.pairs().len(), 1 + 4, "the bank and each account");
    let (_, touched) = run(&mut bank, 5, |bank| bank.keep_above(298));
    assert_eq!(run(&mut bank, 6, |bank| bank.balances()).0, [299]);
    let gone = touched.pairs().iter().filter(|pair| pair.sum == Pair::REMOVED).map(|pair| pair.id);
    assert_eq!(gone.collect::<Vec<_>>(), [all[0].id(), all[1].id(), all[3].id()]);
    assert_eq!(bank.scrub(9), []);
}

#[test]
fn a_scrub_shows_objects_that_requests_sum_at_length() {
    let large = |bank: &Bank| {
        let mut all = Vec::new();
        assert_eq!(bank.scrub_sizes(9, &mut |large| all.push(large)), []);
        all
    };
    let mut bank = genesis(0, Bank::new);
    let at_most = Large::FROM_BYTES - 1_000;
    run(&mut bank, 1, |bank| bank.note(vec![1; at_most], Vec::new(), &[1; 100_000]));
    assert_eq!(large(&bank), [], "of a large value only the checksums of its pieces are summed");
    for (notes, numbers) in [(vec![1; 20_000], Vec::new()), (Vec::new(), vec![1; 2_500])] {
        run(&mut bank, 2, |bank| bank.note(notes, numbers, &[]));
        let all = large(&bank);
        assert_eq!(
            all.iter().map(|large| (large.class, large.id)).collect::<Vec<_>>(),
            [("Bank", bank.root())]
        );
        assert!((20_000..21_000).contains(&all[0].bytes), "{all:?}");
    }
}

#[critical]
struct Ledger {
    first: Store<Account>,
    second: Store<Account>,
}

#[critical]
impl Ledger {
    fn new() -> Self {
        Self { first: Store::new(), second: Store::new() }
    }
    fn open(&mut self, number: u32) {
        let me = self.object_id();
        self.first.insert_numbered(me, number, Account::new(u64::from(number)));
        let second = ObjectId::SECOND_TABLE | number;
        self.second.insert_numbered(me, second, Account::new(1_000_000 + u64::from(number)));
    }
    fn balances(&self, number: u32) -> (u64, u64) {
        let me = self.object_id();
        let second = Ref::numbered(me, ObjectId::SECOND_TABLE | number);
        (self.first.expect(Ref::numbered(me, number)).balance(), self.second.expect(second).balance())
    }
}

#[test]
fn two_tables_of_one_owner_have_objects_of_their_own() {
    // More than one chunk of slots.
    let numbers = 0..3_000;
    let ledger = genesis(3, || {
        let mut ledger = Ledger::new();
        numbers.clone().for_each(|number| ledger.open(number));
        ledger
    });
    let mut names = std::collections::BTreeSet::new();
    ledger.objects(&mut |listed| assert!(names.insert(listed.id), "{} is there twice", listed.id));
    assert_eq!(names.len(), 6_001);
    assert!(ledger.scrub(10).is_empty());
    for number in numbers {
        assert_eq!(ledger.balances(number), (u64::from(number), 1_000_000 + u64::from(number)));
    }
}

/// Searches have made an index of the store before the fault, and references have lost their slots, as after a repair.
#[test]
fn a_doubled_object_is_still_found_when_its_twin_is_gone() {
    let (mut bank, mut accounts) = bank();
    run(&mut bank, 4, |bank| accounts.extend((0..12).map(|balance| bank.open(balance))));
    let found = |bank: &mut Bank, position| run(bank, position, |bank| bank.count_of(&accounts)).0;
    assert_eq!(found(&mut bank, 900), 16);
    let doubled = accounts[3].id();
    bank.inject(doubled, &Injection::Double).expect("it is there");
    bank.inject(doubled, &Injection::Lose).expect("it is there");
    assert_eq!(bank.scrub(9), [], "one of the two is left, and it is whole");
    assert_eq!(found(&mut bank, 901), 16);
    // What should not be there is dropped, and its twin with it.
    bank.inject(doubled, &Injection::Double).expect("it is there");
    bank.replace(doubled, None).expect("a repair");
    assert_eq!(found(&mut bank, 902), 15);
    assert_eq!(
        bank.scrub(9),
        [ScrubFinding::Lost(doubled)],
        "one object is missing, and none is there twice"
    );
}
