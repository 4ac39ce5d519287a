//! What the running program is called: messages, help texts and paths name the program that the operator typed.

use std::sync::OnceLock;

use crate::Application;

/// What the commands say of the program that they are part of.
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
    /// [`Application::OBJECTS`].
    pub objects: &'static str,
    /// [`Application::OBJECT`].
    pub object: &'static str,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// What is said before [`enter`], which a program calls first of all: in unit tests only.
const UNNAMED: Program = Program {
    name: "crosscheck",
    version: env!("CARGO_PKG_VERSION"),
    about: "A replicated service",
    port: 11_211,
    objects: "  NAME   an object, as the service names it",
    object: "NAME",
};

/// From now on this process is the program of `A`. A second call changes nothing.
pub fn enter<A: Application>() {
    let _ = PROGRAM.set(Program {
        name: A::NAME,
        version: A::VERSION,
        about: A::ABOUT,
        port: A::PORT,
        objects: A::OBJECTS,
        object: A::OBJECT,
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

/// A text of the commands, for this program: `{program}` stands for its name, `{port}` and `{third_port}` for the
/// client ports of the first and the third replica, `{objects}` and `{object}` for the names of its objects.
pub fn text(template: &str) -> String {
    let this = program();
    template
        .replace("{program}", this.name)
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
        assert_eq!(text("--object {object}\n{objects}"), format!("--object NAME\n{}", UNNAMED.objects));
    }
}
