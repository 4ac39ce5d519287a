//! Describes types for `object::Shape`: the names of members and variants, and their types, in order.

use crate::home;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields};

/// `object::Shaped` for a struct or an enum.
pub fn expand(item: &DeriveInput) -> TokenStream {
    let object = home::object_path(None);
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    let body = body(item, &object);
    quote! {
        #[automatically_derived]
        impl #impl_generics #object::Shaped for #name #type_generics #where_clause {
            fn describe(shape: &mut #object::Shape) { #body }
        }
    }
}

/// The statements that describe the type to `shape`.
pub fn body(item: &DeriveInput, object: &TokenStream) -> TokenStream {
    let name = &item.ident;
    let parts = match &item.data {
        Data::Struct(data) => members(&data.fields, object),
        Data::Enum(data) => {
            let variant = |variant: &syn::Variant| {
                let (name, members) = (variant.ident.to_string(), members(&variant.fields, object));
                quote!(shape.text(#name); #members)
            };
            data.variants.iter().map(variant).collect()
        }
        Data::Union(_) => TokenStream::new(),
    };
    quote! {
        #[allow(unused_imports)]
        use #object::hidden::Neither as _;
        if shape.begins::<Self>(::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name))) {
            #parts
        }
    }
}

fn members(fields: &Fields, object: &TokenStream) -> TokenStream {
    let member = |(index, field): (usize, &syn::Field)| {
        let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        let ty = &field.ty;
        let written = quote!(#ty).to_string();
        quote!(shape.member(#name, #written); <#object::hidden::Of<#ty>>::shape(shape);)
    };
    fields.iter().enumerate().map(member).collect()
}
