//! Expands `#[derive(Summed)]`: plain values that can be members of critical types.

use crate::home;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, Result};

/// `object::Summed` for a struct or enum whose parts all are `Summed`.
pub fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let object = home::object_path(None);
    if !item.generics.params.is_empty() {
        return Err(Error::new_spanned(&item.generics, "derive(Summed) is for types without parameters"));
    }
    let name = &item.ident;
    let (sum, pack, unpack, blank) = match &item.data {
        Data::Struct(data) => {
            let shape = Shape::of(&data.fields, &object);
            let (pattern, sum, pack, unpack, blank) =
                (&shape.pattern, &shape.sum, &shape.pack, &shape.unpack, &shape.blank);
            (
                quote!(let Self #pattern = self; #sum),
                quote!(let Self #pattern = self; #pack),
                quote!(::core::result::Result::Ok(Self #unpack)),
                quote!(Self #blank),
            )
        }
        Data::Enum(data) if !data.variants.is_empty() => variants(data, &object),
        _ => {
            return Err(Error::new_spanned(
                name,
                "derive(Summed) is for structs and for enums with a variant",
            ));
        }
    };
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #object::Summed for #name {
            #[inline]
            fn sum(&self, summer: &mut #object::Summer) { #sum }
            fn pack(&self, out: &mut ::std::vec::Vec<u8>) { #pack }
            fn unpack(from: &mut #object::Reader<'_>) -> ::core::result::Result<Self, #object::Malformed> { #unpack }
            fn blank() -> Self { #blank }
        }
    })
}

type Bodies = (TokenStream, TokenStream, TokenStream, TokenStream);

fn variants(data: &syn::DataEnum, object: &TokenStream) -> Bodies {
    let (mut sums, mut packs, mut unpacks, mut blank) = (Vec::new(), Vec::new(), Vec::new(), None);
    for (index, variant) in data.variants.iter().enumerate() {
        let (name, tag, shape) = (&variant.ident, index as u16, Shape::of(&variant.fields, object));
        let (pattern, sum, pack, unpack, empty) =
            (&shape.pattern, &shape.sum, &shape.pack, &shape.unpack, &shape.blank);
        sums.push(quote!(Self::#name #pattern => { #object::Summed::sum(&#tag, summer); #sum }));
        packs.push(quote!(Self::#name #pattern => { #object::Summed::pack(&#tag, out); #pack }));
        unpacks.push(quote!(#tag => ::core::result::Result::Ok(Self::#name #unpack)));
        blank.get_or_insert(quote!(Self::#name #empty));
    }
    (
        quote!(match self { #(#sums)* }),
        quote!(match self { #(#packs)* }),
        quote! {
            match <u16 as #object::Summed>::unpack(from)? {
                #(#unpacks,)*
                _ => ::core::result::Result::Err(#object::Malformed("an enum's variant that does not exist")),
            }
        },
        quote!(#blank),
    )
}

/// The parts of a struct or variant, as pattern, statements and constructors.
struct Shape {
    pattern: TokenStream,
    sum: TokenStream,
    pack: TokenStream,
    unpack: TokenStream,
    blank: TokenStream,
}

impl Shape {
    fn of(fields: &Fields, object: &TokenStream) -> Self {
        let bound: Vec<syn::Ident> = (0..fields.len()).map(|index| format_ident!("__p{index}")).collect();
        let types: Vec<&syn::Type> = fields.iter().map(|field| &field.ty).collect();
        let sum = quote!(#(#object::Summed::sum(#bound, summer);)*);
        let pack = quote!(#(#object::Summed::pack(#bound, out);)*);
        let (pattern, unpack, blank) = match fields {
            Fields::Named(named) => {
                let names: Vec<_> = named.named.iter().map(|field| &field.ident).collect();
                (
                    quote!({ #(#names: #bound),* }),
                    quote!({ #(#names: <#types as #object::Summed>::unpack(from)?),* }),
                    quote!({ #(#names: <#types as #object::Summed>::blank()),* }),
                )
            }
            Fields::Unnamed(_) => (
                quote!((#(#bound),*)),
                quote!((#(<#types as #object::Summed>::unpack(from)?),*)),
                quote!((#(<#types as #object::Summed>::blank()),*)),
            ),
            Fields::Unit => (quote!(), quote!(), quote!()),
        };
        Shape { pattern, sum, pack, unpack, blank }
    }
}
