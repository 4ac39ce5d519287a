//! The macro that makes a type critical: it hides the members behind `object::Protected`, so that no code reaches them
//! without the check, and records what only the compiler knows about a type: the names and types of its members.
//!
//! One verb in each file: `parse` reads the author's code, `check` refuses types that could not be protected and names
//! the remedy, `refuse` does so for the types of members and `history` for versions, `structs`, `versions` and `impls`
//! expand. Code that can be a function is in the crate `object`.

use proc_macro::TokenStream;
use quote::quote;

mod check;
mod handlers;
mod history;
mod home;
mod impls;
mod kinds;
mod locks;
mod parse;
mod refuse;
mod service;
mod shaped;
mod structs;
mod summed;
mod versions;

/// Makes a struct critical, or weaves the entry checks into its methods (EDCC'16 sections V-B and VI-D).
///
/// On a struct, the members move behind `object::Protected`, together with a hidden 16-byte header (object id and
/// checksum). A member marked `#[uncritical]` is not summed, packed or repaired; its type must be `Default`. A member
/// whose type is itself critical, an `object::Store` of critical objects or a collection such as `object::Map`, keeps
/// its own checksum and is not summed twice. Any other member's type must be `object::Summed`; if it is not, the build
/// fails.
///
/// On an impl (inherent or of a trait), a method with `&self` first checks the object, one with `&mut self` checks and
/// opens it; the checksum is renewed once, when the request ends. Struct literals `Self { .. }` get their header here.
/// Inside such a method `self` is the bare, already checked set of members: members of *another* object of the same
/// type can only be reached through its methods, that is, through its check.
///
/// A method with `&mut self` that only changes what is in the object's stores is marked `#[through]`: the object is
/// checked and not summed again. Its `self` has the other members as shared references, and each store as an
/// `object::Inside`, so the compiler refuses to change the object itself.
///
/// One or two members of 32 bits (`object::HotWord`) that change far more often than the others are marked `#[hot]`. A
/// method with `&mut self` that changes only them is marked `#[hot]` too: the others are neither kept as they were nor
/// summed again, so that noting an access costs the same for an object of any size. Its `self` has the hot members as
/// exclusive references and the others as shared ones.
///
/// A struct whose members change from one release to the next says so: `#[critical(version = 2)]`. The number is that
/// of the behavior since which objects are written so; objects of all versions before can be read.
///
/// - `#[since(2)]` or `#[since(2, default = VALUE)]`: the member came. An object of an earlier version has this value
///   in it, a function of its other members: the expression may use `self`, as a method with `&self` does. Without it
///   the value is `Default::default()`.
/// - `#[until(2)]`: the member is gone. It stays in the struct for objects of earlier versions, and is blank in others.
/// - `#[renamed(2, from = "name")]`: it had another name.
/// - A member of another type is a new one, behind one that is gone and keeps its name in the earlier version.
/// - `#[critical(since = 2)]`: the type itself was new.
///
/// What stays is declared in its order; members that come may stand anywhere. A member that is critical or a store
/// cannot go, and a critical one cannot come; a store can.
///
/// Arguments: `#[critical(copy)]` keeps a local copy that repairs a flipped passive object on the spot;
/// `#[critical(crate = "path")]` names the path of `object` where the macro cannot find it in the author's manifest.
#[proc_macro_attribute]
pub fn critical(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = match syn::parse::<parse::Arguments>(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return error.into_compile_error().into(),
    };
    let expanded = match syn::parse::<syn::Item>(item) {
        Ok(syn::Item::Struct(item)) => structs::expand(&arguments, item),
        Ok(syn::Item::Impl(item)) => impls::expand(&arguments, item),
        Ok(other) => Err(syn::Error::new_spanned(
            quote!(#other),
            "#[critical] goes on a struct with named members, or on an impl of one; \
             an enum is a value: derive `Summed` for it and make it a member",
        )),
        Err(error) => Err(error),
    };
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Lets a plain value type (struct or enum of summable parts) be a member of a critical type.
///
/// Writes `object::Summed`: the parts are summed and packed in the order of their declaration, an enum's variant
/// first, as a `u16`. Type parameters have to be `Summed` too.
#[proc_macro_derive(Summed)]
pub fn derive_summed(item: TokenStream) -> TokenStream {
    match syn::parse::<syn::DeriveInput>(item) {
        Ok(item) => summed::expand(&item).unwrap_or_else(syn::Error::into_compile_error).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Describes the type for `object::Shape`: for requests with an encoding of their own, of which two builds have to be
/// told apart. A type with `#[derive(Summed)]` has a description already.
#[proc_macro_derive(Shaped)]
pub fn derive_shaped(item: TokenStream) -> TokenStream {
    match syn::parse::<syn::DeriveInput>(item) {
        Ok(item) => shaped::expand(&item).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Numbers and names the requests of an enum, for evidence and messages: `kind`, from 1 in the order of the variants,
/// and `kind_name`, the variant's name in lower case with `_` between words. `crosscheck::Service::kind` and
/// `kind_name` call them.
#[proc_macro_derive(Kinds)]
pub fn derive_kinds(item: TokenStream) -> TokenStream {
    match syn::parse::<syn::DeriveInput>(item) {
        Ok(item) => kinds::expand(&item).unwrap_or_else(syn::Error::into_compile_error).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Lists the locks of a service for `schedule::Locks`, in the order of its members, which is that of the locks'
/// numbers. Every member is a lock, or several locks of one type; one that is none has `#[locks(skip)]`.
#[proc_macro_derive(Locks, attributes(locks))]
pub fn derive_locks(item: TokenStream) -> TokenStream {
    match syn::parse::<syn::DeriveInput>(item) {
        Ok(item) => locks::expand(&item).unwrap_or_else(syn::Error::into_compile_error).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Makes a struct the state of a service in short form: `crosscheck::short` says how.
///
/// `#[service(port = 6379, protocol = Resp)]`: the client port of the first replica, and how clients speak (`Resp`,
/// `Lines`, `Frames`, or an author's `Language`). `name = "..."` is the program's name, in place of the struct's in
/// small letters, and `shards = N` the number of parts, in place of 16.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = syn::parse::<service::Arguments>(arguments)
        .and_then(|arguments| service::expand(&arguments, &syn::parse(item)?));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes the methods of such a struct its requests.
///
/// A method with `&mut self` and `cx: &Ctx<'_, Self>` is one. The argument with `#[key]` decides on which part of the
/// state it runs; without one it runs on all. A method with `#[closed]` runs when connections have ended.
#[proc_macro_attribute]
pub fn handlers(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(handlers::expand);
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
