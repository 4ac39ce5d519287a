//! Puts the library below a prefix, as `make install` would: a program with its own Makefile then needs `pkg-config`
//! and nothing of this repository.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::compile::{SHARED, Variant};
use crate::fetch::make;
use crate::library;

/// Name of the module of `pkg-config`.
pub const MODULE: &str = "crosscheck-sei";

/// A file that GCC reads where `-fgnu-tm` is among the options of a link: it adds its own library for transactions,
/// which lets unprotected code through. Ours adds nothing, and what the library refuses fails to link.
const SPECS: &str = "# The link of a program with -fgnu-tm adds nothing.\n*link_itm: %{static: }\n";

/// What was written.
#[derive(Debug)]
pub struct Installed {
    /// Each file.
    pub files: Vec<PathBuf>,
    /// The folder that PKG_CONFIG_PATH needs, unless the prefix is one of the system's.
    pub modules: PathBuf,
}

/// Installs the headers, and the archive and module of a variant; `archive` is where its library is.
///
/// # Errors
/// If the variant is no library's, or a file cannot be written.
pub fn install(prefix: &Path, variant: Variant, archive: &Path) -> Result<Installed> {
    variant_has_library(variant)?;
    let (suffix, define) = if variant == Variant::Dup { ("-dup", " -DSEI_DUP") } else { ("", "") };
    make(prefix)?;
    let prefix = prefix.canonicalize()?;
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let (own, modules) = (lib.join(MODULE), lib.join("pkgconfig"));
    for folder in [&include, &own, &modules] {
        make(folder)?;
    }
    library::write_headers(&include)?;
    let mut files: Vec<PathBuf> = library::HEADERS.iter().map(|(name, _)| include.join(name)).collect();
    let name = format!("crosscheck_sei{}", suffix.replace('-', "_"));
    let kept = lib.join(format!("lib{name}.a"));
    fs::copy(archive, &kept).with_context(|| format!("cannot copy the library to {}", kept.display()))?;
    files.push(kept);
    let mut write = |file: PathBuf, text: &str| {
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        files.push(file);
        anyhow::Ok(())
    };
    write(own.join("cflags"), SHARED)?;
    write(own.join("libitm.spec"), SPECS)?;
    write(modules.join(format!("{MODULE}{suffix}.pc")), &module(&prefix, suffix, define, &name))?;
    Ok(Installed { files, modules })
}

/// Whether a variant can be installed.
///
/// # Errors
/// If its library is another one's.
pub fn variant_has_library(variant: Variant) -> Result<()> {
    if !matches!(variant, Variant::Sei | Variant::Dup) {
        bail!("{variant} is no library of its own: install `sei` or `dup`");
    }
    Ok(())
}

/// The text of the module.
fn module(prefix: &Path, suffix: &str, define: &str, name: &str) -> String {
    let mut text = format!("prefix={}\n", prefix.display());
    let _ = write!(
        text,
        "includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\n\
         Name: {MODULE}{suffix}\n\
         Description: Runs each handler of a C program twice, and lets nothing out that differs\n\
         Version: {}\n\
         Cflags: @${{libdir}}/{MODULE}/cflags -B${{libdir}}/{MODULE}/ -I${{includedir}}{define}\n\
         Libs: -L${{libdir}} -l{name} -lpthread -ldl -lm\n",
        env!("CARGO_PKG_VERSION")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_lie_beside_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let archive = folder.path().join("made.a");
        fs::write(&archive, "!<arch>\n").expect("written");
        let prefix = folder.path().join("prefix");
        let mut all = std::collections::BTreeSet::new();
        for variant in [Variant::Sei, Variant::Dup] {
            all.extend(install(&prefix, variant, &archive).expect("installed").files);
        }
        assert!(all.iter().all(|file| file.is_file()), "{all:?}");
        for name in ["lib/libcrosscheck_sei.a", "lib/libcrosscheck_sei_dup.a", "include/sei/shim.h"] {
            assert!(all.contains(&prefix.canonicalize().expect("it is there").join(name)), "{name}: {all:?}");
        }
        let error = install(&prefix, Variant::Native, &archive).expect_err("it needs no library").to_string();
        assert!(error.contains("`sei` or `dup`"), "{error}");
    }
}
