//! The output of `perf script`: call stacks, each assigned to its stage of a request's path.

use serde::Serialize;

/// A stage of a request's path (ARCHITECTURE.md), and three categories outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StackStage {
    /// Bytes of clients become requests.
    Decode,
    /// The replicas agree on positions.
    Order,
    /// Requests get their turns.
    Schedule,
    /// Handlers run, on objects that are checked and sealed.
    Execute,
    /// Digests are made and compared.
    Vote,
    /// Replies leave.
    Externalize,
    /// Messages between replicas: their sockets, with any content.
    Links,
    /// Waiting for events, and waking up.
    Waiting,
    /// Everything else, and other programs.
    Other,
}

impl StackStage {
    /// Every stage, in the order of the path.
    pub const ALL: [StackStage; 9] = [
        StackStage::Decode,
        StackStage::Order,
        StackStage::Schedule,
        StackStage::Execute,
        StackStage::Vote,
        StackStage::Externalize,
        StackStage::Links,
        StackStage::Waiting,
        StackStage::Other,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            StackStage::Decode => "Decode",
            StackStage::Order => "Order",
            StackStage::Schedule => "Schedule",
            StackStage::Execute => "Execute",
            StackStage::Vote => "Vote",
            StackStage::Externalize => "Externalize",
            StackStage::Links => "Links",
            StackStage::Waiting => "Waiting",
            StackStage::Other => "Other",
        }
    }
}

/// Functions that identify a stage: the innermost function that a rule matches decides, by the first rule that does.
const RULES: [(&str, StackStage); 23] = [
    ("vote::", StackStage::Vote),
    ("replica::agree", StackStage::Vote),
    ("perform_commands", StackStage::Vote),
    ("reply::Replies", StackStage::Vote),
    ("crosscheck::peers", StackStage::Links),
    ("Connection<P>::write", StackStage::Externalize),
    ("ClientSide>::flush", StackStage::Externalize),
    ("ClientSide>::answer", StackStage::Externalize),
    ("externalize", StackStage::Externalize),
    ("memcached::protocol", StackStage::Decode),
    ("memcached::command", StackStage::Decode),
    ("crosscheck::clients", StackStage::Decode),
    ("order::", StackStage::Order),
    ("raft", StackStage::Order),
    ("replica::schedule_stage", StackStage::Schedule),
    ("schedule::", StackStage::Schedule),
    ("object::", StackStage::Execute),
    ("execute::", StackStage::Execute),
    ("memcached::", StackStage::Execute),
    ("crosscheck::worker", StackStage::Execute),
    ("crosscheck::job", StackStage::Execute),
    ("epoll_wait", StackStage::Waiting),
    ("mio::poll", StackStage::Waiting),
];

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Function names, the innermost first.
    pub frames: Vec<String>,
    /// Whether the processor was in the kernel.
    pub in_kernel: bool,
}

impl Stack {
    /// The stage of the sample.
    pub fn stage(&self) -> StackStage {
        self.frames.iter().find_map(|frame| stage_of(frame)).unwrap_or(StackStage::Other)
    }
}

/// The stage that a function identifies.
pub fn stage_of(frame: &str) -> Option<StackStage> {
    RULES.iter().find(|(part, _)| frame.contains(part)).map(|(_, stage)| *stage)
}

/// Reads the text of `perf script -F comm,ip,sym,dso`: per sample a line with the thread's name, a line per
/// frame, an empty line.
pub fn parse(text: &str) -> Vec<Stack> {
    let mut stacks = Vec::new();
    let mut current: Option<Stack> = None;
    for line in text.lines() {
        if line.trim().is_empty() {
            stacks.extend(current.take().filter(|stack| !stack.frames.is_empty()));
        } else if !line.starts_with([' ', '\t']) {
            stacks.extend(current.take().filter(|stack| !stack.frames.is_empty()));
            current = Some(Stack { frames: Vec::new(), in_kernel: false });
        } else if let (Some(stack), Some((_, function))) = (&mut current, line.trim().split_once(' ')) {
            let (name, file) = function.rsplit_once(" (").unwrap_or((function, ""));
            if stack.frames.is_empty() {
                stack.in_kernel = file.starts_with("[kernel");
            }
            stack.frames.push(short(name));
        }
    }
    stacks.extend(current.filter(|stack| !stack.frames.is_empty()));
    stacks
}

/// The name without the compiler's hash at its end.
fn short(name: &str) -> String {
    let hash = |end: &str| {
        end.len() == 17 && end.starts_with('h') && end[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match name.rsplit_once("::") {
        Some((name, end)) if hash(end) => name.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "replica 1 \n\t    7f12 __memmove_avx (/usr/lib/libc.so.6)\n\t    55aa \
                        vote::digest::reply::h0123456789abcdef (/bin/crosscheck)\n\t    55ab main (/bin/crosscheck)\n\n\
                        replica 1 \n\tffff8 do_sys_poll ([kernel.kallsyms])\n\t  55cc epoll_wait \
                        (/usr/lib/libc.so.6)\n\n\
                        memcached \n\t 12 drive_machine (/usr/bin/memcached)\n";

    #[test]
    fn samples_belong_to_the_innermost_stage() {
        let stacks = parse(TEXT);
        assert_eq!(stacks.len(), 3);
        assert_eq!(stacks[0].frames, ["__memmove_avx", "vote::digest::reply", "main"]);
        let stages: Vec<StackStage> = stacks.iter().map(Stack::stage).collect();
        assert_eq!(stages, [StackStage::Vote, StackStage::Waiting, StackStage::Other]);
        assert_eq!(stacks.iter().map(|stack| stack.in_kernel).collect::<Vec<_>>(), [false, true, false]);
    }

    /// A rule whose function was renamed would move its time to another stage unnoticed.
    #[test]
    fn what_the_rules_name_is_in_the_sources() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
        let mut sources = String::new();
        let crates = ["crosscheck", "order", "schedule", "object", "execute", "vote", "memcached"];
        let mut folders: Vec<_> =
            crates.iter().map(|name| root.join("server").join(name).join("src")).collect();
        while let Some(folder) = folders.pop() {
            for path in
                std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path())
            {
                match path.is_dir() {
                    true => folders.push(path),
                    false => sources += &std::fs::read_to_string(path).expect("a source file"),
                }
            }
        }
        let is_ours = |word: &&str| !["epoll_wait", "mio", "poll", "raft"].contains(word);
        for (rule, _) in RULES {
            let words = rule.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            for word in words.filter(|word| word.len() > 1).filter(is_ours) {
                let is_known = crates.contains(&word)
                    || ["fn", "mod", "struct", "trait", "enum"].iter().any(|kind| {
                        [' ', '(', '<', ';', ':']
                            .iter()
                            .any(|end| sources.contains(&format!("{kind} {word}{end}")))
                    });
                assert!(is_known, "{rule}: {word} is in no source file");
            }
        }
    }

    #[test]
    fn every_stage_but_the_last_has_a_rule() {
        for stage in &StackStage::ALL[..StackStage::ALL.len() - 1] {
            assert!(RULES.iter().any(|(_, reported)| reported == stage), "{stage:?}");
        }
    }
}
