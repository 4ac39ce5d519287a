//! The methods of a service in short form: each is a request, with what a client types, its key, and its name.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Error, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, Pat, Type};

use crate::home;

/// A method that is a request.
struct Method {
    method: Ident,
    variant: Ident,
    docs: Vec<Attribute>,
    arguments: Vec<Argument>,
    /// It runs when connections have ended, and is no command.
    is_closed: bool,
}

/// An argument of such a method, behind the context.
struct Argument {
    name: Ident,
    of: Type,
    is_key: bool,
    /// It is the client's connection, and no word of the command.
    is_client: bool,
}

/// The critical methods, the enum of their requests, and `crosscheck::short::StatePart`.
pub fn expand(mut item: ItemImpl) -> syn::Result<TokenStream> {
    let Type::Path(of) = &*item.self_ty else {
        return Err(Error::new_spanned(
            &item.self_ty,
            "these are the methods of the struct with `#[service]`",
        ));
    };
    let Some(ident) = of.path.get_ident().cloned() else {
        return Err(Error::new_spanned(of, "write the name of the struct with `#[service]`, without a path"));
    };
    let mut handlers = Vec::new();
    for method in &mut item.items {
        if let ImplItem::Fn(method) = method {
            handlers.extend(handler(method)?);
        }
    }
    if handlers.is_empty() {
        let what = "no method is a request: one has `&mut self`, `cx: &Ctx<'_, Self>`, and further arguments";
        return Err(Error::new_spanned(&item.self_ty, what));
    }
    let object = home::object_path(None);
    let (requests, part) = (requests(&ident, &handlers), part(&ident, &handlers));
    Ok(quote! {
        #[#object::critical]
        #item

        #requests
        #part
    })
}

/// The request that a method is; none for a method of another kind. Takes the attributes that the compiler does not
/// know.
fn handler(method: &mut ImplItemFn) -> syn::Result<Option<Method>> {
    let mut inputs = method.sig.inputs.iter_mut();
    let (Some(FnArg::Receiver(receiver)), Some(FnArg::Typed(context))) = (inputs.next(), inputs.next())
    else {
        return Ok(None);
    };
    let is_context = matches!(&*context.ty, Type::Reference(to) if is_named(&to.elem, "Ctx"));
    if receiver.mutability.is_none() || !is_context {
        return Ok(None);
    }
    let mut arguments = Vec::new();
    for input in inputs {
        let FnArg::Typed(typed) = input else { continue };
        let Pat::Ident(name) = &*typed.pat else {
            return Err(Error::new_spanned(&typed.pat, "an argument of a request has a name"));
        };
        let name = name.ident.clone();
        let is_key = take(&mut typed.attrs, "key");
        let is_client = is_named(&typed.ty, "ConnectionId");
        arguments.push(Argument { name, of: (*typed.ty).clone(), is_key, is_client });
    }
    if let Some(second) = arguments.iter().filter(|argument| argument.is_key).nth(1) {
        let what = "a request has one key: it runs on the part of the state that the key belongs to";
        return Err(Error::new(second.name.span(), what));
    }
    let is_closed = take(&mut method.attrs, "closed");
    if is_closed && !(arguments.len() == 1 && is_named(&arguments[0].of, "Ended")) {
        let what = "a method with `#[closed]` has one argument behind the context: `ended: Ended`";
        return Err(Error::new_spanned(&method.sig, what));
    }
    let ident = method.sig.ident.clone();
    let docs = method.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    let variant = format_ident!("{}", in_capitals(&ident.to_string()), span = ident.span());
    Ok(Some(Method { method: ident, variant, docs, arguments, is_closed }))
}

/// The enum of the requests.
fn requests(ident: &Ident, handlers: &[Method]) -> TokenStream {
    let object = home::object_path(None);
    let name = format_ident!("{}Request", ident);
    let about = format!("The requests to `{ident}`.");
    let variants = handlers.iter().map(|Method { variant, docs, arguments, .. }| {
        let members = arguments.iter().map(|Argument { name, of, .. }| quote!(#name: #of));
        quote!(#(#docs)* #[allow(missing_docs)] #variant { #(#members),* })
    });
    quote! {
        #[doc = #about]
        #[derive(
            ::core::clone::Clone, ::core::fmt::Debug, ::core::cmp::PartialEq, #object::Summed, #object::Kinds,
        )]
        #[allow(missing_docs)]
        pub enum #name { #(#variants),* }
    }
}

/// `crosscheck::short::StatePart` of the struct.
fn part(ident: &Ident, handlers: &[Method]) -> TokenStream {
    let (object, facade) = (home::object_path(None), home::facade_path());
    let request = format_ident!("{}Request", ident);
    let commands =
        handlers.iter().filter(|handler| !handler.is_closed).map(|handler| command(handler, &request));
    let closed = handlers.iter().find(|handler| handler.is_closed).map_or_else(
        || quote!(::core::option::Option::None),
        |Method { variant, arguments, .. }| {
            let names = arguments.iter().map(|argument| &argument.name);
            quote!(::core::option::Option::Some(#request::#variant { #(#names: __ended),* }))
        },
    );
    let keys = handlers.iter().map(|Method { variant, arguments, .. }| {
        match arguments.iter().find(|argument| argument.is_key) {
            Some(Argument { name, .. }) => {
                quote!(#request::#variant { #name, .. } => ::core::option::Option::Some(#object::to_bytes(#name)))
            }
            None => quote!(#request::#variant { .. } => ::core::option::Option::None),
        }
    });
    let runs = handlers.iter().map(|Method { method, variant, arguments, .. }| {
        let names: Vec<_> = arguments.iter().map(|argument| &argument.name).collect();
        quote! {
            #request::#variant { #(#names),* } => ::core::convert::Into::into(
                self.#method(__cx, #(::core::clone::Clone::clone(#names)),*)
            )
        }
    });
    quote! {
        #[automatically_derived]
        impl #facade::short::StatePart for #ident {
            type Request = #request;

            fn request(
                __name: &[u8],
                __words: &[&[u8]],
                __client: #facade::ConnectionId,
            ) -> ::core::result::Result<#request, ::std::string::String> {
                match (__name, __words) {
                    #(#commands)*
                    (other, _) => ::core::result::Result::Err(::std::format!(
                        "unknown command '{}'", other.escape_ascii()
                    )),
                }
            }

            fn closed(__ended: #facade::short::Ended) -> ::core::option::Option<#request> {
                #closed
            }

            fn key(__request: &#request) -> ::core::option::Option<::std::vec::Vec<u8>> {
                match __request { #(#keys),* }
            }

            fn run(
                &mut self,
                __cx: &#facade::short::Ctx<'_, Self>,
                __request: &#request,
            ) -> #facade::short::Answer {
                match __request { #(#runs),* }
            }

            fn name(&self) -> #object::ObjectId {
                self.object_id()
            }

            fn kind(__request: &#request) -> u16 {
                __request.kind()
            }

            fn kind_name(__kind: u16) -> ::core::option::Option<&'static str> {
                #request::kind_name(__kind)
            }
        }
    }
}

/// The request that a client's words are, and how it is used.
fn command(Method { method, variant, arguments, .. }: &Method, request: &Ident) -> TokenStream {
    let facade = home::facade_path();
    let typed = || arguments.iter().filter(|argument| !argument.is_client);
    let words: Vec<_> = (0..typed().count()).map(|number| format_ident!("__word_{}", number)).collect();
    let members = typed().zip(&words).map(|(Argument { name, .. }, word)| {
        let said = name.to_string();
        quote!(#name: #facade::short::argument_of(#said, #word)?)
    });
    let clients = arguments
        .iter()
        .filter(|argument| argument.is_client)
        .map(|Argument { name, .. }| quote!(#name: __client));
    let said = method.to_string();
    let name = syn::LitByteStr::new(said.as_bytes(), method.span());
    let usage: Vec<String> = std::iter::once(said.to_uppercase())
        .chain(typed().map(|argument| argument.name.to_string()))
        .collect();
    let usage = format!("wrong number of arguments; use {}", usage.join(" "));
    quote! {
        (#name, [#(#words),*]) => ::core::result::Result::Ok(#request::#variant { #(#members,)* #(#clients),* }),
        (#name, _) => ::core::result::Result::Err(::std::string::ToString::to_string(#usage)),
    }
}

/// Whether the type is one of this name, by whatever path.
fn is_named(of: &Type, name: &str) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

/// Takes an attribute of this name away; returns whether there was one.
fn take(attributes: &mut Vec<Attribute>, name: &str) -> bool {
    let before = attributes.len();
    attributes.retain(|attribute| !attribute.path().is_ident(name));
    attributes.len() < before
}

/// `set_interest` as `SetInterest`.
fn in_capitals(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    name.split('_').map(word).collect()
}
