//! Which functions handlers reach, and on which way: what keeps one of them from being instrumented has to be told with
//! the handler that needs it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::text::{CallSite, Function, Text};

/// A function with a body: its file's number, and its own in there.
pub type Id = (usize, usize);

/// Functions that start a thread with the function that is passed to them, or register it as a signal handler.
const STARTS: [&str; 3] = ["pthread_create", "thrd_create", "signal"];
/// Members of a structure that a signal handler is assigned to.
const MEMBERS: [&str; 2] = ["sa_handler", "sa_sigaction"];

/// All files of a program.
#[derive(Debug)]
pub struct CallGraph<'a> {
    /// The files.
    pub files: Vec<Text<'a>>,
    /// Functions of each file.
    own: Vec<BTreeMap<&'a str, usize>>,
    /// Functions that all files can call.
    external: BTreeMap<&'a str, Id>,
}

/// How a function is reached: the one that calls it; itself where it is the beginning.
pub type Ways = BTreeMap<Id, Id>;

impl<'a> CallGraph<'a> {
    /// A program of these files.
    pub fn of(files: Vec<Text<'a>>) -> CallGraph<'a> {
        let mut external = BTreeMap::new();
        let mut own = vec![BTreeMap::new(); files.len()];
        for (file, text) in files.iter().enumerate() {
            for (number, function) in text.functions.iter().enumerate() {
                own[file].entry(function.name).or_insert(number);
                if !function.is_static {
                    external.entry(function.name).or_insert((file, number));
                }
            }
        }
        CallGraph { files, own, external }
    }

    /// The function itself.
    pub fn function(&self, id: Id) -> &Function<'a> {
        &self.files[id.0].functions[id.1]
    }

    /// The function that a name means in a file.
    pub fn resolve(&self, file: usize, name: &str) -> Option<Id> {
        let own = self.own[file].get(name).map(|&number| (file, number));
        own.or_else(|| self.external.get(name).copied())
    }

    /// The function of this name, and the first line of its place.
    pub fn place(&self, id: Id) -> (&'a str, usize) {
        self.files[id.0].place(self.function(id).at)
    }

    /// All functions, by their ids.
    pub fn all(&self) -> impl Iterator<Item = (Id, &Function<'a>)> {
        let files = self.files.iter().enumerate();
        files.flat_map(|(file, text)| {
            text.functions.iter().enumerate().map(move |(number, function)| ((file, number), function))
        })
    }

    /// Whether a name in a file is of a function that is instrumented where handlers call it: no SEI_LOCAL function,
    /// and none that has a replacement in handlers.
    fn is_followed(&self, file: usize, name: &str) -> bool {
        let text = &self.files[file];
        !text.attributes(name).is_local && !text.wrapped.contains(name)
    }

    /// What handlers call, and what that calls. SEI_SAFE functions may be behind a pointer, so they count as reached.
    pub fn reached(&self) -> Ways {
        let mut ways = Ways::new();
        let mut waiting = VecDeque::new();
        for (id, function) in self.all() {
            let inside = function.calls.iter().filter(|call| function.is_in_handler(call.at));
            for callee in self.callees(id.0, inside) {
                if ways.try_insert_way(callee, id) {
                    waiting.push_back(callee);
                }
            }
        }
        self.follow(&mut ways, waiting, |_, _| true);
        let safe = self.all().filter(|(id, function)| self.files[id.0].attributes(function.name).is_safe);
        let safe: VecDeque<Id> = safe.map(|(id, _)| id).filter(|&id| ways.try_insert_way(id, id)).collect();
        self.follow(&mut ways, safe, |_, _| true);
        ways
    }

    /// What each thread and signal handler of the program reaches outside of handlers, by the function in which it
    /// begins.
    pub fn outside(&self) -> BTreeMap<Id, Ways> {
        let started = self.all().flat_map(|(id, function)| {
            self.started(id, function).into_iter().filter_map(move |name| self.resolve(id.0, name))
        });
        let mut all = BTreeMap::new();
        for begin in started {
            all.entry(begin).or_insert_with(|| {
                let mut ways = Ways::from([(begin, begin)]);
                let goes_on = |function: &Function<'a>, call: &CallSite<'a>| !function.is_in_handler(call.at);
                self.follow(&mut ways, VecDeque::from([begin]), goes_on);
                ways
            });
        }
        all
    }

    /// The ids from the beginning of a way to a function.
    pub fn path(&self, ways: &Ways, to: Id) -> Vec<Id> {
        let mut path = vec![to];
        while let Some(&by) = ways.get(&path[path.len() - 1])
            && !path.contains(&by)
        {
            path.push(by);
        }
        path.reverse();
        path
    }

    fn callees<'s>(&'s self, file: usize, calls: impl Iterator<Item = &'s CallSite<'a>>) -> BTreeSet<Id> {
        let followed = calls.filter(|call| self.is_followed(file, call.name));
        let callees = followed.filter_map(|call| self.resolve(file, call.name));
        callees.filter(|&id| self.is_followed(id.0, self.function(id).name)).collect()
    }

    fn follow(
        &self,
        ways: &mut Ways,
        mut waiting: VecDeque<Id>,
        goes_on: impl Fn(&Function<'a>, &CallSite<'a>) -> bool,
    ) {
        while let Some(id) = waiting.pop_front() {
            let function = self.function(id);
            let calls = function.calls.iter().filter(|call| goes_on(function, call));
            for callee in self.callees(id.0, calls) {
                if ways.try_insert_way(callee, id) {
                    waiting.push_back(callee);
                }
            }
        }
    }

    /// Names that the function passes on as those of a thread, or of a signal handler.
    fn started(&self, id: Id, function: &Function<'a>) -> Vec<&'a str> {
        let starts = function.calls.iter().any(|call| STARTS.contains(&call.name));
        let body = &self.files[id.0].text[function.body.clone()];
        let assigns = MEMBERS.iter().any(|member| body.contains(member));
        if starts || assigns { function.mentions.clone() } else { Vec::new() }
    }
}

trait TryInsert {
    /// Whether the function was not reached before.
    fn try_insert_way(&mut self, to: Id, by: Id) -> bool;
}

impl TryInsert for Ways {
    fn try_insert_way(&mut self, to: Id, by: Id) -> bool {
        let is_new = !self.contains_key(&to);
        self.entry(to).or_insert(by);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(program: &CallGraph<'_>, ways: &Ways) -> Vec<String> {
        ways.keys().map(|&id| program.function(id).name.to_owned()).collect()
    }

    #[test]
    fn calls_are_followed_through_files() {
        let one = "int other(int); int own(void) __attribute__((transaction_pure)); void low(void) { }\n\
                   static void mid(void) { own(); other(1); }\n\
                   int own(void) { return only_own(); } int only_own(void) { return 1; }\n\
                   int main(void) { low(); { __transaction_atomic { mid(); } } }";
        let two = "static void mid(void) { } int other(int a) { mid(); return deep(); } int deep(void) { return 1; }";
        let program = CallGraph::of(vec![Text::read(one), Text::read(two)]);
        let ways = program.reached();
        assert_eq!(names(&program, &ways), ["mid", "mid", "other", "deep"]);
        let deep = *ways.keys().last().expect("deep");
        let path: Vec<&str> = program.path(&ways, deep).iter().map(|&id| program.function(id).name).collect();
        assert_eq!(path, ["main", "mid", "other", "deep"]);
    }

    #[test]
    fn threads_and_signal_handlers_are_outside() {
        let text = "void both(void) { } void *run(void *x) { both(); { __transaction_atomic { inner(); } } }\n\
                    void inner(void) { } void on_signal(int n) { inner(); }\n\
                    int main(void) { struct sigaction a; a.sa_handler = on_signal; not_started(); }\n\
                    void not_started(void) { both(); } void go(void) { pthread_create(&id, 0, run, 0); }";
        let program = CallGraph::of(vec![Text::read(text)]);
        let all = program.outside();
        let each: Vec<Vec<String>> = all.values().map(|ways| names(&program, ways)).collect();
        assert_eq!(each, [["both", "run"], ["inner", "on_signal"]]);
        assert_eq!(
            program.path(&all[&(0, 3)], (0, 2)),
            [(0, 3), (0, 2)],
            "the handler's part is none of the thread's"
        );
        assert_eq!(names(&program, &program.reached()), ["inner"]);
    }
}
