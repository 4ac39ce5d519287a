//! Lists the locks of a service, so that none that is added is left out: state behind it would be neither repaired nor
//! transferred.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Field, Index, Member};

use crate::home;

/// `schedule::Locks` of a service.
pub fn expand(item: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &item.data else {
        return Err(Error::new_spanned(&item.ident, "`Locks` lists the members of a struct, the service"));
    };
    let mut members = Vec::new();
    for (index, field) in data.fields.iter().enumerate() {
        if !is_skipped(field)? {
            let member = match &field.ident {
                Some(name) => Member::Named(name.clone()),
                None => Member::Unnamed(Index::from(index)),
            };
            members.push((member, field.ty.span()));
        }
    }
    let schedule = home::schedule_path();
    // The error for a member that is no lock is at its type.
    let add =
        members.iter().map(|(member, at)| quote_spanned!(*at=> #schedule::Locks::add(&self.#member, to);));
    let add_mut = members
        .iter()
        .map(|(member, at)| quote_spanned!(*at=> #schedule::Locks::add_mut(&mut self.#member, to);));
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #schedule::Locks for #name #type_generics #where_clause {
            fn add<'locks>(&'locks self, to: &mut ::std::vec::Vec<&'locks dyn #schedule::Lock>) {
                #(#add)*
            }

            fn add_mut<'locks>(&'locks mut self, to: &mut ::std::vec::Vec<&'locks mut dyn #schedule::Lock>) {
                #(#add_mut)*
            }
        }
    })
}

/// Whether the member has `#[locks(skip)]`.
fn is_skipped(field: &Field) -> syn::Result<bool> {
    let mut is_skipped = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("locks")) {
        attribute.parse_nested_meta(|meta| {
            is_skipped |= meta.path.is_ident("skip");
            let what = "the only attribute of a member is `#[locks(skip)]`: it is no lock";
            if meta.path.is_ident("skip") { Ok(()) } else { Err(meta.error(what)) }
        })?;
    }
    Ok(is_skipped)
}
