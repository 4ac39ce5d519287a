//! A program that is built with nothing but what `harden install` has installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use harden::compile::Variant;
use harden::install::install;
use harden::library;

use crate::support::{DETECTED, places, skipped};

/// Counts in a handler, and prints the reply and its CRC; with an argument a fault is in the second run.
const PROGRAM: &str = "#include <sei.h>
static long served;
SEI_LOCAL static int fault(int wanted) { static int runs; return wanted && ++runs == 2; }
int main(int count, char **words) {
    char message[] = \"m\", reply[32];
    int length = 0;
    (void)words;
    if (SEI_BEGIN(message, 1, sei_crc(0, message, 1))) {
        served += 1 + fault(count > 1);
        length = snprintf(reply, sizeof reply, \"%ld\", served);
        sei_output_append(reply, (size_t)length);
        sei_output_done();
        SEI_END();
    }
    printf(\"%s @%08x\\n\", reply, sei_crc_pop());
    return 0;
}
";

fn shell(line: &str, folder: &Path) -> (Option<i32>, String) {
    let output = Command::new("sh").args(["-c", line]).current_dir(folder).output().expect("a shell");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn a_program_is_built_with_pkg_config_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("usr");
    if shell("pkg-config --version && cc -fgnu-tm -E - </dev/null", folder.path()).0 != Some(0) {
        return skipped("pkg-config or a C compiler is not installed: apt-get install pkg-config gcc");
    }
    for (variant, module) in [(Variant::Sei, "crosscheck-sei"), (Variant::Dup, "crosscheck-sei-dup")] {
        let archive = library::find(None, variant, &places().out).expect("cargo builds it");
        let installed = install(&prefix, variant, &archive).expect("installed");
        let path = format!("PKG_CONFIG_PATH={}", installed.modules.display());
        fs::write(folder.path().join("program.c"), PROGRAM).expect("written");
        let build =
            format!("{path} sh -c 'cc -O2 program.c $(pkg-config --cflags --libs {module}) -o program'");
        assert_eq!(shell(&build, folder.path()), (Some(0), String::new()), "{module}");
        let (status, text) = shell("./program", folder.path());
        assert!(status == Some(0) && text.starts_with("1 @") && text.len() == 12, "{module}: {text}");
        let (status, text) = shell("./program fault", folder.path());
        assert!(status == Some(DETECTED) && text.contains("fault detected"), "{module}: {text}");
        // GCC's own library would do what ours refuses.
        let program = fs::read(folder.path().join("program")).expect("it is there");
        assert!(!harden::inspect::needs_libitm(&program).expect("a program"), "{module}");
        let through_pointer = PROGRAM.replace("served += 1", "static void (*by)(void); by(); served += 1");
        fs::write(folder.path().join("program.c"), through_pointer).expect("written");
        assert_ne!(shell(&build, folder.path()).0, Some(0), "{module}: a plain pointer is refused");
    }
}
