//! Expands what a struct with several versions has beside its members: the code of each version, and the way from one
//! to the next.

use crate::history::Versions;
use crate::parse::Member;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

impl Versions {
    /// Whether an object can be of another version than the newest one.
    pub fn are_several(&self) -> bool {
        !self.older.is_empty()
    }

    /// Chooses by `version` between the code of each version; that of the newest one is for any other number too.
    pub fn choose(&self, version: &TokenStream, code: impl Fn(u16) -> TokenStream) -> TokenStream {
        let newest = code(self.newest);
        if !self.are_several() {
            return newest;
        }
        let (older, codes) = (&self.older, self.older.iter().map(|version| code(*version)));
        quote! { match #version { #(#older => { #codes })* _ => { #newest } } }
    }

    /// The type of the header.
    pub fn front(&self, object: &TokenStream) -> TokenStream {
        if self.are_several() {
            quote!(#object::hidden::VersionedHeader)
        } else {
            quote!(#object::hidden::Header)
        }
    }
}

/// The members of a version, in the order in which they are summed and packed.
pub fn members_of(version: u16, members: &[Member]) -> Vec<&Member> {
    members.iter().filter(|member| member.tracked && member.history.has(version)).collect()
}

/// The functions of `object::hidden::Members` for a struct with several versions.
pub fn functions(object: &TokenStream, versions: &Versions, members: &[Member]) -> TokenStream {
    if !versions.are_several() {
        return TokenStream::new();
    }
    let later = members.iter().filter_map(|member| {
        let (name, first, since) = (&member.name, first_value(&member.name), member.history.since?.version);
        Some(quote! {
            if self.__header.version() < #since {
                let value = self.#first();
                self.#name = value;
            }
        })
    });
    let gone = members.iter().filter_map(|member| {
        let (name, ty, until) = (&member.name, &member.field.ty, member.history.until?.version);
        Some(quote! {
            if self.__header.version() >= #until {
                self.#name = <#object::hidden::Of<#ty>>::blank();
            }
        })
    });
    let blank = members.iter().filter_map(|member| {
        let (name, ty, since) = (&member.name, &member.field.ty, member.history.since?.version);
        Some(quote! {
            if self.__header.version() < #since {
                self.#name = <#object::hidden::Of<#ty>>::blank();
            }
        })
    });
    quote! {
        #[inline]
        fn version(&self) -> u16 {
            self.__header.version()
        }
        #[inline]
        fn versioned(&self) -> ::core::option::Option<&#object::hidden::VersionedHeader> {
            ::core::option::Option::Some(&self.__header)
        }
        #[inline]
        fn versioned_mut(&mut self) -> ::core::option::Option<&mut #object::hidden::VersionedHeader> {
            ::core::option::Option::Some(&mut self.__header)
        }
        fn settle(&mut self) {
            #[allow(unused_imports)]
            use #object::hidden::Neither as _;
            // No value follows from what such a member was before: it differs from replica to replica.
            #(#gone)*
            #(#blank)*
            #(#later)*
        }
    }
}

/// What the author's methods, and the functions above, use of the versions; and what no type can be that changes.
pub fn methods(
    object: &TokenStream,
    hidden: &syn::Ident,
    versions: &Versions,
    members: &[Member],
) -> TokenStream {
    if !versions.are_several() {
        return TokenStream::new();
    }
    let firsts = members.iter().filter(|member| member.history.since.is_some()).map(|member| {
        let (first, ty) = (first_value(&member.name), &member.field.ty);
        let default = quote_spanned!(ty.span()=> ::core::default::Default::default());
        let value = member.history.default.as_ref().map_or(default, |value| quote!(#value));
        quote! {
            fn #first(&self) -> #ty {
                #value
            }
        }
    });
    let refused = members.iter().filter_map(|member| refusal(object, member));
    quote! {
        #[automatically_derived]
        #[allow(dead_code, clippy::all)]
        impl #hidden {
            /// The version in which the object was written last: which of its members count.
            #[inline]
            fn stored_version(&self) -> u16 {
                self.__header.version()
            }
            #(#firsts)*
        }

        #(#refused)*
    }
}

fn first_value(name: &syn::Ident) -> syn::Ident {
    format_ident!("__first_{}", name)
}

/// Fails the build for a member that came or went, and may not.
fn refusal(object: &TokenStream, member: &Member) -> Option<TokenStream> {
    let (name, ty) = (&member.name, &member.field.ty);
    let (is_refused, why) = if member.history.until.is_some() {
        let why = format!(
            "member `{name}` has objects inside, and cannot go: take them out by requests, and leave the member"
        );
        (quote!(IS_CHILD), why)
    } else if member.history.since.is_some() {
        let why = format!(
            "member `{name}` is critical, and its id would be another one on each replica: keep it in a member \
             `Store`, which is empty at first"
        );
        (quote!(IS_CRITICAL), why)
    } else {
        return None;
    };
    Some(quote_spanned! { ty.span()=>
        const _: () = {
            #[allow(unused_imports)]
            use #object::hidden::Neither as _;
            if <#object::hidden::Of<#ty>>::#is_refused {
                ::core::panic!("{}", #why);
            }
        };
    })
}

/// `CLASS` with the versions before, and the constant that it refers to.
pub fn class(
    object: &TokenStream,
    (name, hidden): (&syn::Ident, &syn::Ident),
    versions: &Versions,
    members: &[Member],
) -> (TokenStream, TokenStream) {
    let of_version = |version: u16| {
        let members = members_of(version, members);
        let labels: Vec<String> =
            members.iter().map(|member| member.history.name_in(version, &member.name)).collect();
        let types: Vec<&syn::Type> = members.iter().map(|member| &member.field.ty).collect();
        let written: Vec<String> = types.iter().map(|ty| quote!(#ty).to_string()).collect();
        quote! {
            #object::hidden::Class::new(
                ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                &[#(#labels),*],
                |shape| {
                    #[allow(unused_imports)]
                    use #object::hidden::Neither as _;
                    #(shape.member(#labels, #written); <#object::hidden::Of<#types>>::shape(shape);)*
                },
            )
            .in_version(#version)
        }
    };
    let newest = of_version(versions.newest);
    let numbers: Vec<String> = versions.older.iter().chain([&versions.newest]).map(u16::to_string).collect();
    let unknown = format!(
        "` that this program does not know (it knows {}), or of another class: start the release of the program that \
         wrote it, or a later one",
        numbers.join(", ")
    );
    let unknown = quote! {
        ::core::concat!(
            "an object in a version of `",
            ::core::module_path!(), "::", ::core::stringify!(#name),
            #unknown,
        )
    };
    if !versions.are_several() {
        return (quote!(#newest.with_older(&[], #unknown)), TokenStream::new());
    }
    let older = versions.older.iter().map(|version| of_version(*version));
    let older = quote! {
        #[automatically_derived]
        impl #hidden {
            const __OLDER: &'static [#object::hidden::Class] = &[#(#older),*];
        }
    };
    let class = quote!(#newest.with_older(Self::__OLDER, #unknown));
    (class, older)
}
