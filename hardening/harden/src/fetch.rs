//! Gets a program's original archive as a Debian source package, and refuses any other file.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::recipe::{App, SourceOrigin};
use crate::tool::{self, Lack};

/// Where apt keeps its list of sources on a Debian machine.
const SOURCES: &str = "/etc/apt";

/// Unpacks the program's source into `folder`, which is made anew. `store` keeps archives; `offered` is a file that the
/// operator has.
///
/// # Errors
/// If there is no archive with the recipe's SHA-256, or it cannot be unpacked.
pub fn unpack(app: &App, store: &Path, offered: Option<&Path>, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    make(folder)?;
    match &app.recipe.source {
        SourceOrigin::Folder { folder: from } => {
            let from = app.folder.as_deref().unwrap_or(Path::new(".")).join(from);
            copy(&from, folder)
        }
        SourceOrigin::Package { package, version, archive, sha256 } => {
            let wanted = Wanted { package, version, archive, sha256 };
            let file = wanted.archive(store, offered)?;
            let mut tar = tool::call("tar");
            tar.args(["--extract", "--no-same-owner", "--strip-components=1", "--file"]);
            tar.arg(&file).arg("--directory").arg(folder);
            tool::succeed(&mut tar, "tar xz-utils", &format!("cannot unpack {}", file.display())).map(drop)
        }
    }
}

/// The archive of a recipe.
struct Wanted<'a> {
    package: &'a str,
    version: &'a str,
    archive: &'a str,
    sha256: &'a str,
}

impl Wanted<'_> {
    fn archive(&self, store: &Path, offered: Option<&Path>) -> Result<PathBuf> {
        if let Some(file) = offered {
            self.check(file)?;
            return Ok(file.to_owned());
        }
        let kept = store.join(self.archive);
        // Two programs are built at a time, and apt-get has one lock per folder: the second one waits for the first.
        let lock = File::create(store.join("download.lock")).context("cannot make the lock of downloads")?;
        lock.lock().context("cannot wait for another download")?;
        if kept.exists() && self.check(&kept).is_ok() {
            return Ok(kept);
        }
        self.download(store)?;
        if !kept.exists() {
            bail!(
                "the source package {} has no file {}: it has moved on from {}, for which the patches are made; \
                 get that archive elsewhere and pass it with --archive FILE",
                self.package,
                self.archive,
                self.version
            );
        }
        self.check(&kept)?;
        Ok(kept)
    }

    fn check(&self, file: &Path) -> Result<()> {
        let found = sha256(file)?;
        if !found.eq_ignore_ascii_case(self.sha256) {
            bail!(
                "{} is not the archive that the recipe names: its SHA-256 is {found}, not {}; delete it, or pass \
                 the right one with --archive FILE",
                file.display(),
                self.sha256
            );
        }
        Ok(())
    }

    /// Downloads with lists of our own: the machine's configuration stays as it is, and root is not needed.
    fn download(&self, store: &Path) -> Result<()> {
        let apt = store.join("apt");
        for folder in ["parts", "lists/partial", "cache/archives/partial"] {
            make(&apt.join(folder))?;
        }
        let entries = source_entries(Path::new(SOURCES))?;
        if entries.is_empty() {
            return Err(anyhow::Error::new(Lack(format!(
                "this machine has no Debian package sources in {SOURCES}, from which {} would come; get {} elsewhere \
                 and pass it with --archive FILE",
                self.package, self.archive
            ))));
        }
        for (name, text) in entries {
            fs::write(apt.join("parts").join(name), text)
                .context("cannot write the list of package sources")?;
        }
        let apt = apt.canonicalize()?;
        let folder = |part: &str| apt.join(part).display().to_string();
        let config = format!(
            "Dir::Etc::SourceList \"/dev/null\";\nDir::Etc::SourceParts \"{}\";\nDir::State::Lists \"{}\";\n\
             Dir::Cache \"{}\";\nAPT::Sandbox::User \"\";\nAcquire::Retries \"2\";\n",
            folder("parts"),
            folder("lists"),
            folder("cache")
        );
        fs::write(apt.join("apt.conf"), config).context("cannot write the configuration of apt-get")?;
        let remedy =
            "is there a network? Without one, get the archive elsewhere and pass it with --archive FILE";
        let get = |arguments: &[&str]| {
            let mut command = tool::call("apt-get");
            command.env("APT_CONFIG", apt.join("apt.conf")).current_dir(store).args(["-q"]).args(arguments);
            let doing = format!("cannot download the source package {} ({remedy})", self.package);
            let printed = tool::run(&mut command, "apt")?;
            if !printed.is_success {
                return Err(anyhow::Error::new(Lack(format!("{doing}:\n{}", tool::tail(&printed)))));
            }
            Ok(())
        };
        get(&["-o", "APT::Update::Error-Mode=any", "update"])?;
        get(&["source", "--download-only", "--only-source", self.package])
    }
}

/// The machine's package sources as entries for source packages: (file name, text).
fn source_entries(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut files = vec![folder.join("sources.list")];
    if let Ok(parts) = fs::read_dir(folder.join("sources.list.d")) {
        files.extend(parts.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    for file in files.into_iter().filter(|file| file.is_file()) {
        let Some(name) = file.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        let text = || fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()));
        let entries = match file.extension().and_then(|end| end.to_str()) {
            Some("sources") => stanzas(&text()?),
            Some("list") => lines(&text()?),
            _ => continue,
        };
        if !entries.is_empty() {
            found.push((name, entries));
        }
    }
    Ok(found)
}

/// Stanzas for binary packages (`Types: deb`), as stanzas for source packages.
fn stanzas(text: &str) -> String {
    let mut found = String::new();
    for stanza in text.split("\n\n") {
        let is_types = |line: &&str| line.trim_start().to_ascii_lowercase().starts_with("types:");
        let types = stanza.lines().find(is_types).and_then(|line| line.split_once(':'));
        if types.is_some_and(|(_, types)| types.split_whitespace().any(|kind| kind == "deb")) {
            for line in stanza.lines() {
                let line = if is_types(&line) { "Types: deb-src" } else { line };
                let _ = writeln!(found, "{line}");
            }
            found.push('\n');
        }
    }
    found
}

/// Lines for binary packages (`deb ...`), as lines for source packages.
fn lines(text: &str) -> String {
    let entries = text.lines().filter_map(|line| line.trim_start().strip_prefix("deb"));
    entries.filter(|rest| rest.starts_with([' ', '\t'])).fold(String::new(), |mut all, rest| {
        let _ = writeln!(all, "deb-src{rest}");
        all
    })
}

/// The SHA-256 of a file in hexadecimal.
///
/// # Errors
/// If it cannot be read.
pub fn sha256(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(hex(&bytes))
}

/// The SHA-256 of these bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Makes a folder and those above it.
pub(crate) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Copies the files of a folder, and of those in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let context = || format!("cannot copy {} to {}", from.display(), to.display());
    make(to)?;
    for entry in fs::read_dir(from).with_context(context)? {
        let entry = entry.with_context(context)?;
        let target = to.join(entry.file_name());
        if entry.file_type().with_context(context)?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target).with_context(context)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_for_binary_packages_become_entries_for_sources() {
        let text = "# ours\nTypes: deb\nURIs: mirror:/x\nSuites: a\n\nTypes: deb-src\nURIs: y\n\n\
                    Types: deb deb-src\nURIs: z\n";
        let found = stanzas(text);
        assert_eq!(found.matches("Types: deb-src").count(), 2, "{found}");
        assert!(
            found.contains("mirror:/x") && found.contains("URIs: z") && !found.contains("URIs: y"),
            "{found}"
        );
        let text = "deb mirror:/x a main\ndeb-src mirror:/y a main\n# deb no\n  deb\t[trusted=no] z b\n";
        assert_eq!(lines(text), "deb-src mirror:/x a main\ndeb-src\t[trusted=no] z b\n");
    }

    #[test]
    fn another_archive_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.tar");
        fs::write(&file, "abc").expect("written");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let wanted = Wanted { package: "a", version: "1", archive: "a.tar", sha256: abc };
        assert_eq!(wanted.archive(folder.path(), None).expect("the right one"), file);
        let sha256 = &abc.replace('b', "c");
        let wanted = Wanted { sha256, ..wanted };
        let error = wanted.archive(folder.path(), Some(&file)).expect_err("another sum").to_string();
        assert!(error.contains("SHA-256") && error.contains("--archive"), "{error}");
    }
}
