//! Finds the paths by which the author's crate reaches the crates `object` and `schedule`: directly, or through the
//! facade.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;

/// Path of `object` as the author's crate can write it.
///
/// A crate that is `object` or the facade itself is reached under its own name too (both have `extern crate self as`),
/// because examples and tests of a package are crates of their own and yet "itself" for the manifest.
pub fn object_path(named: Option<&syn::Path>) -> TokenStream {
    if let Some(path) = named {
        return quote!(#path);
    }
    path_of("object")
}

/// Path of `schedule`, likewise.
pub fn schedule_path() -> TokenStream {
    path_of("schedule")
}

/// Path of the facade.
pub fn facade_path() -> TokenStream {
    match crate_name("crosscheck") {
        Ok(FoundCrate::Name(name)) => {
            let name = syn::Ident::new(&name, Span::call_site());
            quote!(::#name)
        }
        Ok(FoundCrate::Itself) | Err(_) => quote!(::crosscheck),
    }
}

fn path_of(wanted: &str) -> TokenStream {
    let ident = |name: &str| syn::Ident::new(name, Span::call_site());
    let itself = ident(wanted);
    match (crate_name(wanted), crate_name("crosscheck")) {
        (Ok(FoundCrate::Name(name)), _) => {
            let name = ident(&name);
            quote!(::#name)
        }
        (Err(_), Ok(FoundCrate::Name(name))) => {
            let name = ident(&name);
            quote!(::#name::#itself)
        }
        (Err(_), Ok(FoundCrate::Itself)) => quote!(::crosscheck::#itself),
        (Ok(FoundCrate::Itself), _) | (Err(_), Err(_)) => quote!(::#itself),
    }
}
