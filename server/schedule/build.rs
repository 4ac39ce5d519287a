//! Declares `cfg(loom)`, so that a misspelt cfg is still reported.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
