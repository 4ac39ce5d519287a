//! What to do about each cause, in words that can be followed without knowing the compiler.

/// Functions of the C library that handlers cannot call, and what they can call that does the same.
const INSTEAD: [(&str, &str); 24] = [
    ("printf", "fprintf(stdout, ...)"),
    ("vprintf", "vfprintf(stdout, ...)"),
    ("puts", "fputs(text, stdout), with the line's end in the text"),
    ("putchar", "fwrite(&byte, 1, 1, stdout)"),
    ("fputc", "fwrite(&byte, 1, 1, stream)"),
    ("putc", "fwrite(&byte, 1, 1, stream)"),
    ("warn", "fprintf(stderr, ...) with strerror's text taken outside"),
    ("warnx", "fprintf(stderr, ...)"),
    ("err", "fprintf(stderr, ...) and an error that the code behind the handler sees"),
    ("errx", "fprintf(stderr, ...) and an error that the code behind the handler sees"),
    ("strtoimax", "strtoll"),
    ("strtoumax", "strtoull"),
    ("strtoq", "strtoll"),
    ("strtouq", "strtoull"),
    ("index", "strchr"),
    ("rindex", "strrchr"),
    ("bcmp", "memcmp"),
    ("bcopy", "memmove"),
    ("bzero", "memset"),
    ("strchrnul", "strchr"),
    ("asprintf", "snprintf into memory from malloc"),
    ("vasprintf", "vsnprintf into memory from malloc"),
    ("reallocarray", "realloc"),
    ("mempcpy", "memcpy"),
];

/// Functions that wait, or make something that the process keeps: never inside.
const OUTSIDE: [&str; 18] = [
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "sleep",
    "usleep",
    "nanosleep",
    "waitpid",
    "wait",
    "system",
    "popen",
    "execv",
    "execve",
    "execvp",
    "sigwait",
    "pause",
    "getaddrinfo",
];

/// Where a function has its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In a library.
    Library,
    /// In another file of a program.
    File,
    /// In a file that the recipe compiles apart.
    Apart(String),
}

/// What to do about the call of a function.
pub fn call(name: &str, body: &Body) -> String {
    let local = format!(
        "where it writes nothing but its own locals, declare it so: `extern __typeof__({name}) {name} SEI_LOCAL;`"
    );
    match body {
        Body::File => "compile one file that includes all that handlers reach (docs/sei.md, rule 6); or declare each \
                       function SEI_SAFE in its header and at its body, or SEI_LOCAL where it writes nothing but its \
                       own locals"
            .to_owned(),
        Body::Apart(file) => {
            format!(
                "it is in {file}, which the recipe compiles apart: add that file to `unit.files`; or {local}"
            )
        }
        Body::Library if built_in(name).is_some() => built_in(name).unwrap_or_default().to_owned(),
        Body::Library => {
            if let Some((_, instead)) = INSTEAD.iter().find(|(of, _)| *of == name) {
                return format!("call {instead}");
            }
            if OUTSIDE.contains(&name) {
                return "take it out of the handler: it waits, or starts something that cannot be undone"
                    .to_owned();
            }
            format!("call it behind the handler; or write a shim for it (sei/shim.h); or {local}")
        }
    }
}

fn built_in(name: &str) -> Option<&'static str> {
    if name.starts_with("__builtin_va_") {
        return Some(
            "a function with `...` cannot be instrumented: make it a macro around snprintf or fprintf, or a function \
             that is given the values",
        );
    }
    if name.starts_with("__builtin_alloca") {
        return Some("no arrays of variable size in handlers: give it a fixed bound, or take malloc");
    }
    if name.starts_with("__atomic_") || name.starts_with("__sync_") {
        return Some(
            "count with sei_add_u64, read with sei_read_u32, sei_read_u64 or sei_read_ptr, or take a lock",
        );
    }
    name.starts_with("__builtin_").then_some("take it out of the handler")
}

/// What to do where nothing begins a handler.
pub const NO_HANDLER: &str = "begin one with SEI_BEGIN, where a message has arrived, and end it with SEI_END, before \
    its reply is sent (docs/sei.md)";
/// What to do about a call through a pointer.
pub const POINTER: &str = "declare the type of the pointer SEI_SAFE, in its typedef or its declaration, and the \
    functions behind it, too; or SEI_LOCAL where they write nothing but their own locals";
/// What to do about a volatile variable.
pub const VOLATILE: &str = "read it with a function that SEI_READER(function, variable) defines; write it outside of \
    handlers, or make it a plain variable";
/// What to do about inline assembly.
pub const ASSEMBLY: &str = "put it into a `static inline` function with SEI_LOCAL, where it writes nothing but locals; \
    or take it out of the handler";
/// What to do about a file that is refused as it is.
pub const COMPILE_FIRST: &str = "mend that first: the rest of the file was not looked at";
/// What to do about a function that has no instrumented copy.
pub const ALWAYS_INLINE: &str = "take `always_inline` away from it: it excludes an instrumented copy; or declare what \
    calls it SEI_LOCAL, where that writes nothing but its own locals";
/// What to do about something that the compiler refuses in other words.
pub const OTHER: &str =
    "take it out of the handler, or into a SEI_LOCAL function where it writes nothing but locals";
/// What to do about something at which the compiler stops.
pub const INTERNAL: &str = "move it to a function that the handler calls: in a handler itself GCC stops with an \
    internal error";

#[cfg(test)]
mod tests {
    use super::*;

    /// A remedy that the compiler refuses as well would be none.
    #[test]
    fn what_to_call_instead_can_be_called() {
        let (_, wrap) = crate::library::HEADERS[1];
        for (name, instead) in INSTEAD {
            let called = instead.split(['(', ' ', ',']).next().unwrap_or_default();
            let is_there = wrap.contains(&format!(", {called}, (")) || wrap.contains(&format!("{called}("));
            let is_redirected = ["memmove", "memset", "memcpy"].contains(&called);
            assert!(is_there || is_redirected, "{name}: {called} is not in wrap.h");
        }
    }

    #[test]
    fn remedies_fit_where_the_body_is() {
        assert!(
            call("getloadavg", &Body::Library)
                .contains("`extern __typeof__(getloadavg) getloadavg SEI_LOCAL;`")
        );
        assert!(call("put_job", &Body::File).contains("SEI_SAFE"));
        assert!(call("hash", &Body::Apart("hash.c".into())).contains("`unit.files`"));
        assert!(call("__builtin_va_start", &Body::Library).contains("macro"));
        assert!(call("epoll_wait", &Body::Library).contains("out of the handler"));
    }
}
