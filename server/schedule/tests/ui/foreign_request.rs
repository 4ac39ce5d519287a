//! A handler starts requests of its schedule's type, and no other.
use schedule::{Cx, Waiters};

struct Request(u64);

fn handler(cx: &Cx<'_, Request>, waiters: &mut Waiters<u64>) {
    cx.spawn(Request(1));
    cx.spawn(5u32);
    cx.at(7, "tick");
    waiters.notify_all(cx);
}

fn main() {}
