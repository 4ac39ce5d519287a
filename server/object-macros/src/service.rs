//! The struct of a service in short form: one part of its state, a critical type, and what the program is called.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, Expr, ExprLit, Fields, Ident, ItemStruct, Lit, LitInt, LitStr, Meta, Path, Token,
};

use crate::home;

/// What stands in the parentheses.
pub struct Arguments {
    name: Option<LitStr>,
    port: LitInt,
    protocol: Path,
    shards: Option<LitInt>,
}

const USE: &str =
    "write `#[service(port = 6379, protocol = Resp)]`; `name = \"...\"` and `shards = 16` may follow";

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let begin = input.span();
        let (mut name, mut port, mut protocol, mut shards) = (None, None, None, None);
        while !input.is_empty() {
            let what: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match what.to_string().as_str() {
                "name" => name = Some(input.parse()?),
                "port" => port = Some(input.parse()?),
                "protocol" => protocol = Some(input.parse()?),
                "shards" => shards = Some(input.parse()?),
                _ => return Err(Error::new(what.span(), USE)),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        match (port, protocol) {
            (Some(port), Some(protocol)) => Ok(Arguments { name, port, protocol, shards }),
            _ => Err(Error::new(begin, USE)),
        }
    }
}

/// The critical type, and its `crosscheck::short::PartSettings`.
pub fn expand(arguments: &Arguments, item: &ItemStruct) -> syn::Result<TokenStream> {
    let Fields::Named(fields) = &item.fields else {
        return Err(Error::new_spanned(item, "the state of a service has members with names"));
    };
    let Arguments { name, port, protocol, shards } = arguments;
    let (object, facade) = (home::object_path(None), home::facade_path());
    let ident = &item.ident;
    let members = fields.named.iter().filter_map(|field| field.ident.as_ref());
    let name = name.clone().unwrap_or_else(|| LitStr::new(&ident.to_string().to_lowercase(), ident.span()));
    let about = first_line(&item.attrs);
    let shards = shards.clone().unwrap_or_else(|| LitInt::new("16", ident.span()));
    Ok(quote! {
        #[#object::critical]
        #item

        #[#object::critical]
        impl #ident {
            fn __empty() -> Self {
                Self { #(#members: ::core::default::Default::default()),* }
            }
        }

        #[automatically_derived]
        impl #facade::short::PartSettings for #ident {
            type Language = #protocol;
            const NAME: &'static str = #name;
            const VERSION: &'static str = ::core::env!("CARGO_PKG_VERSION");
            const ABOUT: &'static str = #about;
            const PORT: u16 = #port;
            const SHARDS: u32 = #shards;

            fn first() -> Self {
                Self::__empty()
            }
        }
    })
}

/// The first line of the comment above an item.
fn first_line(attributes: &[Attribute]) -> String {
    let line = attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    line.unwrap_or_default().trim().trim_end_matches('.').to_owned()
}
