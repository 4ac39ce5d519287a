//! Reads the author's code: the arguments of `#[critical]`, and the members of a struct.

use crate::history::{self, History};
use quote::format_ident;
use syn::parse::{Parse, ParseStream};

/// The arguments in the brackets of `#[critical(..)]`.
#[derive(Default)]
pub struct Arguments {
    /// Path of the crate `object`, if the author named it.
    pub object: Option<syn::Path>,
    /// Keep a local copy that repairs a flipped passive object on the spot.
    pub copy: bool,
    /// The version of the struct as it is written, and where that is.
    pub version: Option<(u16, proc_macro2::Span)>,
    /// The version in which the struct was new, and where that is written.
    pub since: Option<(u16, proc_macro2::Span)>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut arguments = Arguments::default();
        while !input.is_empty() {
            if input.peek(syn::Token![crate]) {
                input.parse::<syn::Token![crate]>()?;
                input.parse::<syn::Token![=]>()?;
                let path: syn::LitStr = input.parse()?;
                arguments.object = Some(path.parse_with(syn::Path::parse_mod_style)?);
            } else {
                let name: syn::Ident = input.parse()?;
                match name.to_string().as_str() {
                    "copy" => arguments.copy = true,
                    "version" => arguments.version = Some((history::number(input)?, name.span())),
                    "since" => arguments.since = Some((history::number(input)?, name.span())),
                    _ => {
                        return Err(syn::Error::new(
                            name.span(),
                            "#[critical] knows `copy`, `version = N`, `since = N` and `crate = \"path\"`; a member is \
                             left out by marking it #[uncritical]",
                        ));
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<syn::Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

/// One member of a critical struct.
pub struct Member {
    /// The member without the marks that only this macro understands.
    pub field: syn::Field,
    /// Its name.
    pub name: syn::Ident,
    /// Whether it is summed, packed and repaired.
    pub tracked: bool,
    /// Whether it is a hot word: it can be changed without summing the others again.
    pub hot: bool,
    /// The versions that have it.
    pub history: History,
}

/// The named members of a struct, in the order of their declaration.
pub fn members(fields: syn::FieldsNamed) -> syn::Result<Vec<Member>> {
    let mut members = Vec::new();
    for mut field in fields.named {
        let uncritical = take_mark(&mut field.attrs, "uncritical")?;
        let hot = take_mark(&mut field.attrs, "hot")?.is_some();
        let history = History::take(&mut field.attrs)?;
        let Some(name) = field.ident.clone() else {
            return Err(syn::Error::new_spanned(&field, "members of a critical type need names"));
        };
        members.push(Member { field, name, tracked: uncritical.is_none(), hot, history });
    }
    // A member that comes has a number behind those that were there: what has a number keeps it.
    members.sort_by_key(|member| member.history.since_or_first());
    Ok(members)
}

/// Removes the marks `name`, and returns one of them.
pub fn take_mark(attributes: &mut Vec<syn::Attribute>, name: &str) -> syn::Result<Option<syn::Attribute>> {
    let mut found = None;
    for mark in attributes.extract_if(.., |attribute| attribute.path().is_ident(name)) {
        mark.meta.require_path_only()?;
        found = Some(mark);
    }
    Ok(found)
}

/// Name of the hidden struct that holds the members of `name`.
pub fn members_name(name: &syn::Ident) -> syn::Ident {
    format_ident!("__{}Members", name, span = name.span())
}

/// Name of the hidden view of the members of `name` for methods that pass through it.
pub fn view_name(name: &syn::Ident) -> syn::Ident {
    format_ident!("__{}Through", name, span = name.span())
}

/// Name of the hidden view of the members of `name` for methods that change its hot members.
pub fn hot_view_name(name: &syn::Ident) -> syn::Ident {
    format_ident!("__{}Hot", name, span = name.span())
}

/// Whether the type is a store of objects, by its name; a type alias is not recognised.
pub fn is_store(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Store"),
        _ => false,
    }
}
