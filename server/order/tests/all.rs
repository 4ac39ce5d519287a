//! Every integration test of the crate in one binary: the harness is compiled and linked once, not ten times.

mod harness;
mod records;

mod cluster;
mod crash;
mod damage;
mod decoders;
mod disk;
mod founding;
mod hostile;
mod numbers;
mod older;
mod own;
mod primary;
mod rejoin;
mod sizes;
mod stamps;
