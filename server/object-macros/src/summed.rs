//! Expands `#[derive(Summed)]`: plain values that can be members of critical types.

use crate::{home, shaped};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Result};

/// `object::Summed` for a struct or enum whose parts all are `Summed`.
pub fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let object = home::object_path(None);
    if let Some(lifetime) = item.generics.lifetimes().next() {
        return Err(Error::new_spanned(
            lifetime,
            "a summed value borrows nothing: an address differs from replica to replica",
        ));
    }
    let name = &item.ident;
    let mut generics = item.generics.clone();
    generics
        .type_params_mut()
        .for_each(|parameter| parameter.bounds.push(syn::parse_quote!(#object::Summed)));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let fields = required(item);
    let arguments = item.generics.type_params().map(|parameter| &parameter.ident);
    let arguments = quote!(#(<#arguments as #object::Summed>::NAME),*);
    let arguments = (!arguments.is_empty()).then(|| quote!(.of(&[#arguments])));
    let shape = shaped::body(item, &object);
    let stand_in = quote! {
        #[allow(unused_imports)]
        use #object::hidden::Neither as _;
    };
    let mut fixed = None;
    let (sum, pack, unpack, blank, is_intact) = match &item.data {
        Data::Struct(data) => {
            let shape = FieldParts::of(&data.fields, &object);
            fixed = Some(fixed_bytes(&data.fields, &shape.pattern, &object, &stand_in));
            let FieldParts { pattern, sum, pack, unpack, blank, is_intact } = &shape;
            (
                quote!(let Self #pattern = self; #sum),
                quote!(let Self #pattern = self; #pack),
                quote!(::core::result::Result::Ok(Self #unpack)),
                quote!(Self #blank),
                quote!(let Self #pattern = self; #is_intact),
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
        // The one place where the types of the fields have to be summed; for any other type only this place must fail.
        const _: () = {
            #[allow(dead_code)]
            fn fields #impl_generics () #where_clause {
                const fn summed<T: #object::Summed>() {}
                #(#fields)*
            }
        };

        #[automatically_derived]
        #[allow(unused_variables)]
        impl #impl_generics #object::Summed for #name #type_generics #where_clause {
            #[inline]
            fn sum(&self, summer: &mut #object::Summer) { #stand_in #sum }
            fn pack(&self, out: &mut ::std::vec::Vec<u8>) { #stand_in #pack }
            fn unpack(from: &mut #object::Reader<'_>) -> ::core::result::Result<Self, #object::Malformed> {
                #stand_in
                #unpack
            }
            fn blank() -> Self { #stand_in #blank }
            fn is_intact(&self) -> bool { #stand_in #is_intact }
            fn shape(shape: &mut #object::Shape) { #shape }
            const NAME: #object::TypeName = #object::TypeName::new(
                ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name))
            ) #arguments;
            #fixed
        }
    })
}

/// The bytes of a struct that always adds the same number of them, because each of its fields does.
fn fixed_bytes(
    fields: &Fields,
    pattern: &TokenStream,
    object: &TokenStream,
    stand_in: &TokenStream,
) -> TokenStream {
    let types: Vec<&syn::Type> = fields.iter().map(|field| &field.ty).collect();
    let bound = bound(fields);
    quote! {
        const FIXED: usize = {
            #stand_in
            let is_fixed = true #(&& <#object::hidden::Of<#types>>::FIXED_VALUE > 0)*;
            if is_fixed { 0 #(+ <#object::hidden::Of<#types>>::FIXED_VALUE)* } else { 0 }
        };
        #[inline(always)]
        #[allow(unused_assignments, unused_mut)]
        fn put(&self, place: &mut [u8]) {
            #stand_in
            let Self #pattern = self;
            let mut at = 0;
            #(
                let bytes = <#object::hidden::Of<#types>>::FIXED_VALUE;
                <#object::hidden::Of<#types>>::put_value(#bound, &mut place[at..at + bytes]);
                at += bytes;
            )*
        }
    }
}

/// Names for the fields in a pattern.
fn bound(fields: &Fields) -> Vec<syn::Ident> {
    (0..fields.len()).map(|index| format_ident!("__p{index}")).collect()
}

/// The bound of each field, at its type.
fn required(item: &DeriveInput) -> Vec<TokenStream> {
    let fields: Vec<&syn::Field> = match &item.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    };
    let bound = |field: &&syn::Field| {
        let ty = &field.ty;
        quote_spanned!(ty.span()=> summed::<#ty>();)
    };
    fields.iter().map(bound).collect()
}

type Bodies = (TokenStream, TokenStream, TokenStream, TokenStream, TokenStream);

fn variants(data: &syn::DataEnum, object: &TokenStream) -> Bodies {
    let (mut sums, mut packs, mut unpacks, mut sounds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for (index, variant) in data.variants.iter().enumerate() {
        let (name, tag, shape) = (&variant.ident, index as u16, FieldParts::of(&variant.fields, object));
        let FieldParts { pattern, sum, pack, unpack, blank, is_intact } = &shape;
        sums.push(quote!(Self::#name #pattern => { #object::Summed::sum(&#tag, summer); #sum }));
        packs.push(quote!(Self::#name #pattern => { #object::Summed::pack(&#tag, out); #pack }));
        unpacks.push(quote!(#tag => ::core::result::Result::Ok(Self::#name #unpack)));
        sounds.push(quote!(Self::#name #pattern => { #is_intact }));
        first.get_or_insert(quote!(Self::#name #blank));
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
        quote!(#first),
        quote!(match self { #(#sounds)* }),
    )
}

/// The parts of a struct or variant, as pattern, statements and constructors.
struct FieldParts {
    pattern: TokenStream,
    sum: TokenStream,
    pack: TokenStream,
    unpack: TokenStream,
    blank: TokenStream,
    is_intact: TokenStream,
}

impl FieldParts {
    fn of(fields: &Fields, object: &TokenStream) -> Self {
        let bound = bound(fields);
        let types: Vec<&syn::Type> = fields.iter().map(|field| &field.ty).collect();
        let sum = quote!(#(<#object::hidden::Of<#types>>::sum_value(#bound, summer);)*);
        let pack = quote!(#(<#object::hidden::Of<#types>>::pack_value(#bound, out);)*);
        let is_intact = quote!(true #(&& <#object::hidden::Of<#types>>::is_intact_value(#bound))*);
        let (pattern, unpack, blank) = match fields {
            Fields::Named(named) => {
                let names: Vec<_> = named.named.iter().map(|field| &field.ident).collect();
                (
                    quote!({ #(#names: #bound),* }),
                    quote!({ #(#names: <#object::hidden::Of<#types>>::unpack_value(from)?),* }),
                    quote!({ #(#names: <#object::hidden::Of<#types>>::blank_value()),* }),
                )
            }
            Fields::Unnamed(_) => (
                quote!((#(#bound),*)),
                quote!((#(<#object::hidden::Of<#types>>::unpack_value(from)?),*)),
                quote!((#(<#object::hidden::Of<#types>>::blank_value()),*)),
            ),
            Fields::Unit => (quote!(), quote!(), quote!()),
        };
        FieldParts { pattern, sum, pack, unpack, blank, is_intact }
    }
}
