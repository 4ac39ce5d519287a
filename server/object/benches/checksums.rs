//! Candidate checksums at the sizes of our objects; the cost of protection in use (docs/design.md, section 3).
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use object::{Pieces, Ref, Region, ScopeOptions, Store, critical, request};
use std::hint::black_box;
use std::time::Duration;

const SIZES: [usize; 10] = [16, 32, 64, 128, 256, 512, 1 << 10, 4 << 10, 64 << 10, 1 << 20];

/// A candidate: its name and its function.
type Candidate = (&'static str, fn(&[u8]) -> u64);

const CANDIDATES: [Candidate; 5] = [
    ("crc64-nvme", |bytes| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)),
    ("crc32c", |bytes| u64::from(crc32c::crc32c(bytes))),
    ("crc32c+xxh3-32", |bytes| {
        u64::from(crc32c::crc32c(bytes)) << 32 | xxhash_rust::xxh3::xxh3_64(bytes) & 0xFFFF_FFFF
    }),
    ("xxh3-64", xxhash_rust::xxh3::xxh3_64),
    ("crc32c-of-halves", |bytes| {
        let (left, right) = bytes.split_at(bytes.len() / 2);
        u64::from(crc32c::crc32c(left)) << 32 | u64::from(crc32c::crc32c(right))
    }),
];

/// Codes over words that are no object: the code of `Sealed`, a complemented copy, and the checksum of objects.
fn sealed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sealed");
    let complemented = |words: &[u64]| words.iter().all(|word| black_box(!*word) == !*word);
    let coded = |words: &[u64]| {
        let mut code = object::Code::new();
        words.iter().for_each(|word| code.word(*word));
        code
    };
    for count in [1, 4, 16] {
        let words: Vec<u64> = (0..count).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        group.bench_function(BenchmarkId::new("complement", count), |bencher| {
            bencher.iter(|| complemented(black_box(&words)));
        });
        group.bench_function(BenchmarkId::new("code", count), |bencher| {
            bencher.iter(|| coded(black_box(&words)))
        });
        group.bench_function(BenchmarkId::new("crc64-nvme", count), |bencher| {
            bencher.iter(|| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, black_box(&bytes)));
        });
    }
    group.finish();
}

fn candidates(criterion: &mut Criterion) {
    for size in SIZES {
        let mut group = criterion.benchmark_group(format!("sum {size} B"));
        group.throughput(Throughput::Bytes(size as u64));
        let bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
        for (name, sum) in CANDIDATES {
            group.bench_with_input(BenchmarkId::from_parameter(name), &bytes, |bencher, bytes| {
                bencher.iter(|| sum(black_box(bytes)));
            });
        }
        group.finish();
    }
}

#[critical]
struct Item {
    key: Box<[u8]>,
    value: Pieces,
    flags: u32,
    expiry: u64,
    cas: u64,
}

#[critical]
impl Item {
    fn new(value: usize) -> Self {
        Self {
            key: Box::from([7; 100]),
            value: vec![1; value].as_slice().into(),
            flags: 0,
            expiry: 0,
            cas: 1,
        }
    }
    fn flags(&self) -> u32 {
        self.flags
    }
    fn set_flags(&mut self, flags: u32) {
        self.flags = flags;
    }
}

#[critical]
struct Shelf {
    items: Store<Item>,
    first: Ref<Item>,
}

#[critical]
impl Shelf {
    fn new(value: usize) -> Self {
        let mut items = Store::new();
        let first = items.insert(Item::new(value));
        Self { items, first }
    }
    fn item(&self) -> &Item {
        self.items.expect(self.first)
    }
    fn item_mut(&mut self) -> &mut Item {
        self.items.expect_mut(self.first)
    }
}

fn in_use(criterion: &mut Criterion) {
    let options =
        |protect: request::Protect| ScopeOptions { position: 1, protect, keep_before_images: false };
    let mut group = criterion.benchmark_group("object in use");
    let kinds = [
        ("unprotected", request::Protect::Nothing),
        ("sealed", request::Protect::Seal),
        ("protected", request::Protect::Check),
    ];
    for (name, protect) in kinds {
        let mut shelf = object::genesis(0, || Shelf::new(400));
        request::begin(options(protect));
        group.bench_function(format!("{name}: touch again"), |bencher| {
            let item = shelf.item();
            bencher.iter(|| black_box(item).flags());
        });
        request::abandon();
        group.bench_function(format!("{name}: read request, shelf and item of 100 + 400 B"), |bencher| {
            bencher.iter(|| {
                request::begin(options(protect));
                black_box(shelf.item().flags());
                shelf.seal(0);
                request::finish()
            });
        });
        group.bench_function(format!("{name}: write request, shelf and item of 100 + 400 B"), |bencher| {
            bencher.iter(|| {
                request::begin(options(protect));
                shelf.item_mut().set_flags(black_box(5));
                shelf.seal(0);
                request::finish()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(150)).measurement_time(Duration::from_millis(600));
    targets = in_use, candidates, sealed
}
criterion_main!(benches);
