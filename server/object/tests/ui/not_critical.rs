//! Only critical types live in stores and make regions.
use object::{Region, Store};

fn main() {
    let mut store = Store::new();
    store.insert(5u64);
    let region: &dyn Region = &5u64;
    region.digest();
}
