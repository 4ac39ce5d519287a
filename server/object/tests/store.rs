//! Ways over a whole store and to two of its objects, and how a scrub shows objects that are too large.

use object::{Large, Pair, Pieces, Ref, Region, Store, Terms, Touched, critical, genesis, request};

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
    fn add(&mut self, amount: u64) {
        self.balance += amount;
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
    fn balances(&self) -> Vec<u64> {
        self.accounts.iter().map(|(_, account)| account.balance()).collect()
    }
    fn add_to_all(&mut self, amount: u64) {
        self.accounts.for_each_mut(|_, account| account.add(amount));
    }
    fn keep_above(&mut self, balance: u64) {
        self.accounts.retain(|_, account| account.balance() > balance);
    }
    fn swap(&mut self, one: Ref<Account>, other: Ref<Account>) -> bool {
        let Some((one, other)) = self.accounts.get_two_mut(one, other) else { return false };
        let (first, second) = (one.balance(), other.balance());
        one.add(10 * second);
        other.add(10 * first);
        true
    }
    fn note(&mut self, notes: Vec<u8>, numbers: Vec<u64>, value: &[u8]) {
        (self.notes, self.numbers, self.value) = (notes, numbers, Pieces::from(value));
    }
}

fn run<T>(bank: &mut Bank, position: u64, work: impl FnOnce(&mut Bank) -> T) -> (T, Touched) {
    request::begin(Terms { position, protect: request::Protect::Check, keep_before_images: true });
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
    let (_, touched) = run(&mut bank, 5, |bank| bank.add_to_all(1));
    assert_eq!(touched.pairs().len(), 1 + 4);
    assert_eq!(run(&mut bank, 6, |bank| bank.balances()).0, [1, 299, 300, 8]);
    let (_, touched) = run(&mut bank, 7, |bank| bank.keep_above(299));
    assert_eq!(run(&mut bank, 8, |bank| bank.balances()).0, [300]);
    let gone = touched.pairs().iter().filter(|pair| pair.sum == Pair::REMOVED).map(|pair| pair.id);
    assert_eq!(gone.collect::<Vec<_>>(), [all[0].id(), all[1].id(), all[3].id()]);
    assert_eq!(bank.scrub(9), []);
}

#[test]
fn two_objects_are_changed_and_undone_together() {
    let (mut bank, all) = bank();
    for (one, other) in [(0, 1), (1, 2), (3, 0)] {
        let before = bank.digest();
        request::begin(Terms { position: 4, protect: request::Protect::Check, keep_before_images: true });
        assert!(bank.swap(all[one], all[other]));
        bank.undo();
        request::abandon();
        assert_eq!(bank.digest(), before, "{one} and {other}");
    }
    assert!(run(&mut bank, 5, |bank| bank.swap(all[1], all[0])).0);
    assert_eq!(run(&mut bank, 6, |bank| bank.balances()).0, [2980, 298, 299, 7]);
    assert!(!run(&mut bank, 7, |bank| bank.swap(all[1], all[1])).0, "the same");
    assert!(!run(&mut bank, 8, |bank| bank.swap(all[1], Ref::NONE)).0, "none");
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
