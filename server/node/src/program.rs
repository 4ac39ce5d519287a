//! The name of the running program: messages, help texts and paths contain the name that the operator typed.

use std::sync::OnceLock;

use crosscheck::Behaviors;

use crate::{Application, ServiceOptions as _};

/// The names and texts by which the commands refer to their program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// [`Application::NAME`].
    pub name: &'static str,
    /// [`Application::VERSION`].
    pub version: &'static str,
    /// [`Application::ABOUT`].
    pub about: &'static str,
    /// [`Application::PORT`].
    pub port: u16,
    /// [`Application::BEHAVIORS`].
    pub behaviors: Behaviors,
    /// [`Application::OBJECTS`].
    pub objects: &'static str,
    /// [`Application::OBJECT`].
    pub object: &'static str,
    /// The setting that says how much memory the service uses, in MiB ([`crate::ServiceOptions::memory_mb`]).
    pub memory_field: Option<&'static str>,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// The program before [`enter`], which every program calls first: for unit tests only. The columns of texts are laid
/// out for names of this length.
const UNNAMED: Program = Program {
    name: "crosscheck",
    version: env!("CARGO_PKG_VERSION"),
    about: "A replicated service",
    port: 11_211,
    behaviors: Behaviors::FIRST,
    objects: "  kind:NAME   an object, as the service names it",
    object: "kind:the-name",
    memory_field: None,
};

/// From now on this process is the program of `A`. A second call changes nothing.
pub fn enter<A: Application>() {
    enter_as::<A>(A::BEHAVIORS);
}

/// The same for a release that can act as these behaviors: for tests of upgrades.
pub fn enter_as<A: Application>(behaviors: Behaviors) {
    let _ = PROGRAM.set(Program {
        name: A::NAME,
        version: A::VERSION,
        about: A::ABOUT,
        port: A::PORT,
        behaviors,
        objects: A::OBJECTS,
        object: A::OBJECT,
        memory_field: A::Options::default().memory_mb().map(|(field, _)| field),
    });
}

/// The program that this process is.
pub fn program() -> Program {
    PROGRAM.get().copied().unwrap_or(UNNAMED)
}

/// Its name, as the operator types it.
pub fn name() -> &'static str {
    program().name
}

/// A text of the commands, for this program: replaces `{program}` by its name, `{port}` and `{third_port}` by the
/// client ports of the first and the third replica, `{objects}` and `{object}` by the names of its objects.
pub fn text(template: &str) -> String {
    for_program(&program(), template)
}

fn for_program(this: &Program, template: &str) -> String {
    template.split('\n').map(|line| aligned(this, line)).collect::<Vec<_>>().join("\n")
}

/// Keeps a column of its own at the end of a line, behind three spaces or more, at its position.
fn aligned(this: &Program, line: &str) -> String {
    let begin = line.len() - line.trim_start().len();
    let Some(gap) = line[begin..].find("   ").map(|gap| begin + gap) else { return filled(this, line) };
    let left = filled(this, &line[..gap]);
    let right = line[gap..].trim_start();
    let column = filled(&UNNAMED, &line[..gap]).chars().count() + line[gap..].len() - right.len();
    let width = column.max(left.chars().count() + 2);
    format!("{left:<width$}{}", filled(this, right))
}

fn filled(this: &Program, text: &str) -> String {
    text.replace("{program}", this.name)
        .replace("{port}", &this.port.to_string())
        .replace("{third_port}", &this.port.saturating_add(2).to_string())
        .replace("{objects}", this.objects)
        .replace("{object}", this.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_program_and_its_ports() {
        assert_eq!(text("{program} up: {port} to {third_port}"), "crosscheck up: 11211 to 11213");
        let expected = format!("--object {}\n{}", UNNAMED.object, UNNAMED.objects);
        assert_eq!(text("--object {object}\n{objects}"), expected);
    }

    #[test]
    fn columns_stay_where_they_are_under_another_name() {
        let template =
            "  {program} up    starts\n  {program}.toml, {program}  both\n  serve      runs {program}";
        let of = |name| for_program(&Program { name, ..UNNAMED }, template);
        assert_eq!(of("crosscheck"), template.replace("{program}", "crosscheck"));
        assert_eq!(of("bank"), "  bank up          starts\n  bank.toml, bank  both\n  serve      runs bank");
        assert!(of("a-much-longer-name").starts_with("  a-much-longer-name up  starts\n"));
    }
}
