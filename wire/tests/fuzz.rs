//! The fuzz targets on the golden frames with structure-aware mutations, unguided, for seconds.
//!
//! `WIRE_FUZZ_EXECUTIONS` is the number of inputs for each target (default 40000, and a quarter of
//! it for each body type), `WIRE_TEST_SEED` the seed. The same targets run under libFuzzer from
//! `fuzz/`. A failing input is printed as hex.

#[path = "support/corpus.rs"]
mod corpus;
#[path = "support/generator.rs"]
mod generator;
#[path = "support/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use generator::Generator;
use targets::{BODIES, TARGETS, Target};

fn executions() -> usize {
    match std::env::var("WIRE_FUZZ_EXECUTIONS") {
        Ok(text) => text.parse().expect("WIRE_FUZZ_EXECUTIONS is a number"),
        Err(_) => 40_000,
    }
}

/// Numbers that sit on the edges of lengths, counts and sizes.
const NUMBERS: [u64; 14] = [
    0,
    1,
    4,
    25,
    127,
    255,
    256,
    512,
    1024,
    100_000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 63,
    u64::MAX,
];

/// Changes an input: bits, numbers at any place and width, cuts, repeats, and parts of another.
fn mutate(random: &mut Generator, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let length = bytes.len();
        let at = random.below(length + 1);
        match random.below(9) {
            0 | 1 if at < length => bytes[at] ^= 1 << random.below(8),
            2 if at < length => bytes[at] = random.next() as u8,
            3 if at < length => bytes[at] = bytes[at].wrapping_add([1, 2, 255][random.below(3)]),
            4 => {
                let width = [1, 2, 4, 8][random.below(4)];
                let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                for (place, byte) in bytes.iter_mut().skip(at).zip(&number[..width]) {
                    *place = *byte;
                }
            }
            5 => bytes.truncate(at),
            6 => {
                let end = (at + random.below(300)).min(length);
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            7 => {
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let end = (at + random.below(40)).min(length);
                bytes.drain(at..end);
            }
        }
    }
    bytes.truncate(1 << 17);
}

/// Runs one target on its seeds and on mutations of them.
fn run(target: Target, seeds: &[Vec<u8>], random: &mut Generator, executions: usize) {
    let (name, check) = target;
    assert!(!seeds.is_empty(), "{name} has seeds");
    let judge = |input: &[u8]| {
        let outcome = catch_unwind(AssertUnwindSafe(|| check(input)));
        assert!(outcome.is_ok(), "{name}: {}", hex::encode(input));
    };
    for seed in seeds {
        judge(seed);
    }
    for _ in 0..executions {
        let mut input = seeds[random.below(seeds.len())].clone();
        let other = &seeds[random.below(seeds.len())];
        mutate(random, &mut input, other);
        judge(&input);
    }
}

fn run_named(name: &str) {
    let mut random = Generator::new();
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let seeds = corpus::seeds(name, &mut random);
    run(
        *target.expect("a target"),
        &seeds,
        &mut random,
        executions(),
    );
}

macro_rules! targets {
    ($($test:ident)*) => {
        $(#[test] fn $test() { run_named(stringify!($test)); })*

        #[test]
        fn every_target_has_its_test() {
            let tested = [$(stringify!($test)),*];
            let targets: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested.as_slice(), targets.as_slice());
        }
    };
}

targets! { deframer frame batch suffix manifest block dispatch body }

#[test]
fn every_body_by_itself() {
    let mut random = Generator::new();
    for target in BODIES {
        let seeds: Vec<_> = (0..12)
            .map(|_| corpus::body_seed(target.0, &mut random))
            .collect();
        run(*target, &seeds, &mut random, executions() / 4);
    }
}
