//! Tests of the whole pipeline, and of the programs that it builds, in one binary.

mod bits;
mod check;
mod dnscache;
mod install;
mod local;
mod memcached;
mod mosquitto;
mod pipeline;
mod support;
mod trace;
mod upstream;
