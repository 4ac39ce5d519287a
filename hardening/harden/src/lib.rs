//! Other people's C programs with error isolation (the crate `sei`): fetched as a source package, patched, compiled as
//! one unit with GCC's transactional memory, linked with the library, and inspected.
//!
//! A program has a folder with a recipe ([`recipe`]), patches and a `wrap.h`. Building it is a pipeline:
//! [`fetch`] gets the archive and checks its SHA-256, [`patch`] applies the patches, [`mod@unit`] writes the one C file
//! that includes the others, [`compile`] calls the compiler and linker, [`inline`] puts a handler's reads in line, and
//! [`inspect`] reads the object: what it must not reference, and which function does. [`pipeline`] does all of it.
//! [`mod@check`] lists everything that keeps handlers from being hardened, also of programs without a recipe.
//!
//! Nothing of a foreign program is kept in this repository but the lines that patches need.

pub mod bits;
pub mod check;
pub mod compile;
pub mod fetch;
pub mod inline;
pub mod inspect;
pub mod install;
pub mod library;
pub mod local;
pub mod patch;
pub mod pipeline;
pub mod recipe;
pub mod tool;
pub mod unit;
