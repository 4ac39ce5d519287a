//! Compiles the C shims: functions with variable arguments, and types that Rust cannot pass.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    let target = |name| std::env::var(name).unwrap_or_default();
    if target("CARGO_CFG_TARGET_OS") != "linux" || target("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return;
    }
    println!("cargo::rerun-if-changed=shims");
    println!("cargo::rerun-if-changed=include");
    let flags = ["-fno-optimize-sibling-calls", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra"];
    let mut build = cc::Build::new();
    flags.iter().for_each(|flag| {
        build.flag(flag);
    });
    // The shims define what `wrap.h` declares; the attributes there mean nothing without -fgnu-tm.
    build.include("include").define("_GNU_SOURCE", None).flag("-Wno-attributes").opt_level(2);
    if std::env::var_os("CARGO_FEATURE_DUP").is_some() {
        build.define("SEI_DUP", None);
    }
    let shims = ["files", "format", "io", "network", "scan", "send", "streams", "text", "times", "wide"];
    build.files(shims.map(|name| format!("shims/{name}.c")));
    build.compile("sei_shims");
}
