//! Refuses types that could not be protected, with a message that names the remedy.

use crate::parse::Member;
use syn::{Error, Result, spanned::Spanned};

/// Most members that a critical type can have: evidence and injection number them with a byte.
const MEMBERS_MAX: usize = 255;

/// Checks the shape of a critical struct and returns its named members.
pub fn structure(item: &syn::ItemStruct) -> Result<syn::FieldsNamed> {
    if !item.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &item.generics,
            "a critical type has no type or lifetime parameters: objects refer to each other by `object::Ref`, \
             never by reference, and a class has one fixed set of members. For entries of any type there are the \
             collections `Map`, `Set`, `Queue` and `Table`; any value type may be generic with `#[derive(Summed)]`",
        ));
    }
    for attribute in &item.attrs {
        if attribute.path().is_ident("derive") && !derives_only_debug(attribute)? {
            return Err(Error::new_spanned(
                attribute,
                "only `Debug` can be derived for a critical type: a copy made past its methods would skip the check \
                 and share its object id; write the other traits by hand, in a `#[critical] impl`",
            ));
        }
    }
    match &item.fields {
        syn::Fields::Named(fields) => Ok(fields.clone()),
        other => Err(Error::new_spanned(
            if other.is_empty() { quote::quote!(#item) } else { quote::quote!(#other) },
            "a critical type has named members, so that evidence can say which of them was wrong",
        )),
    }
}

/// Most hot members: each is a word of 32 bits, and they are kept and summed as one of 64.
const HOT_MAX: usize = 2;

/// Members are private: code that could name one from outside would skip the check.
pub fn members(members: &[Member]) -> Result<()> {
    let mut errors: Option<Error> = None;
    for member in members {
        if !matches!(member.field.vis, syn::Visibility::Inherited) {
            let message = format!(
                "member `{}` of a critical type must be private: code that reaches it directly would skip the check. \
                 Remove the `pub` and add a method in a `#[critical] impl`",
                member.name
            );
            join(&mut errors, Error::new(member.field.vis.span(), message));
        }
        if member.name.to_string().starts_with("__") {
            join(
                &mut errors,
                Error::new(member.name.span(), "names that begin with `__` belong to the macro"),
            );
        }
    }
    for member in members.iter().filter(|member| member.hot).skip(HOT_MAX) {
        let message =
            "a critical type has at most two hot members: they are kept and summed as one word of 64 bits";
        join(&mut errors, Error::new(member.name.span(), message));
    }
    for member in members.iter().filter(|member| member.hot && !member.tracked) {
        let message = "an `#[uncritical]` member has no checksum: it cannot be `#[hot]`";
        join(&mut errors, Error::new(member.name.span(), message));
    }
    if members.len() > MEMBERS_MAX {
        join(
            &mut errors,
            Error::new(members[MEMBERS_MAX].name.span(), "a critical type has at most 255 members"),
        );
    }
    errors.map_or(Ok(()), Err)
}

/// A local copy is renewed as a whole, from members that are summed as a whole: after a change of hot members it would
/// take over an error in the others.
pub fn copies(copy: bool, members: &[Member]) -> Result<()> {
    match members.iter().find(|member| copy && member.hot) {
        None => Ok(()),
        Some(member) => Err(Error::new(
            member.name.span(),
            "a type with a local copy, `#[critical(copy)]`, has no `#[hot]` members: a copy is renewed as a whole",
        )),
    }
}

/// The kinds of methods into which no check can be woven.
pub fn method(signature: &syn::Signature) -> Result<()> {
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(
            token,
            "a method of a critical type cannot be async: a request is checked, runs and is sealed on one thread",
        ));
    }
    if let Some(token) = &signature.constness {
        return Err(Error::new_spanned(
            token,
            "a method that enters a critical object checks it, and so cannot be const",
        ));
    }
    if let Some(syn::FnArg::Receiver(receiver)) = signature.inputs.first()
        && receiver.colon_token.is_some()
    {
        return Err(Error::new_spanned(
            receiver,
            "a method of a critical type takes `self`, `&self` or `&mut self`",
        ));
    }
    Ok(())
}

fn derives_only_debug(attribute: &syn::Attribute) -> Result<bool> {
    let mut only = true;
    attribute.parse_nested_meta(|meta| {
        only &= meta.path.segments.last().is_some_and(|last| last.ident == "Debug");
        Ok(())
    })?;
    Ok(only)
}

fn join(errors: &mut Option<Error>, error: Error) {
    match errors {
        Some(errors) => errors.combine(error),
        None => *errors = Some(error),
    }
}
