//! Finds the path by which the author's crate reaches the crate `object`: directly, or through the facade.

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
    match (crate_name("object"), crate_name("crosscheck")) {
        (Ok(FoundCrate::Name(name)), _) => {
            let name = syn::Ident::new(&name, Span::call_site());
            quote!(::#name)
        }
        (Err(_), Ok(FoundCrate::Name(name))) => {
            let name = syn::Ident::new(&name, Span::call_site());
            quote!(::#name::object)
        }
        (Err(_), Ok(FoundCrate::Itself)) => quote!(::crosscheck::object),
        (Ok(FoundCrate::Itself), _) | (Err(_), Err(_)) => quote!(::object),
    }
}
