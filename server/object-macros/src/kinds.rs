//! Numbers and names the requests of an enum, for evidence: a request that is added cannot be left out of a list.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields};

/// `kind` and `kind_name` of an enum of requests.
pub fn expand(item: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Enum(data) = &item.data else {
        return Err(Error::new_spanned(
            &item.ident,
            "`Kinds` numbers the variants of an enum of requests; a service with requests of one kind needs none",
        ));
    };
    let numbered = || (1u16..).zip(&data.variants);
    let numbers = numbered().map(|(number, variant)| {
        let name = &variant.ident;
        let parts = match &variant.fields {
            Fields::Named(_) => quote!({ .. }),
            Fields::Unnamed(_) => quote!((..)),
            Fields::Unit => TokenStream::new(),
        };
        quote!(Self::#name #parts => #number,)
    });
    let names = numbered().map(|(number, variant)| {
        let name = in_words(&variant.ident.to_string());
        quote!(#number => #name,)
    });
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #name #type_generics #where_clause {
            /// The kind of request, from 1: the number of its variant.
            pub fn kind(&self) -> u16 {
                match self { #(#numbers)* }
            }

            /// The name of a kind of request.
            pub fn kind_name(kind: u16) -> ::core::option::Option<&'static str> {
                ::core::option::Option::Some(match kind {
                    #(#names)*
                    _ => return ::core::option::Option::None,
                })
            }
        }
    })
}

/// `SetInterest` as `set_interest`.
fn in_words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
