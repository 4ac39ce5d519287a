//! Expands `#[critical]` on a struct: the members move behind `object::Protected`.

use crate::parse::{Arguments, Member};
use crate::{check, home, parse};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

/// The outer struct, the hidden struct of its members, and what `object` needs to know about both.
pub fn expand(arguments: &Arguments, item: syn::ItemStruct) -> syn::Result<TokenStream> {
    let fields = check::structure(&item)?;
    let members = parse::members(fields)?;
    check::members(&members)?;

    let object = home::object_path(arguments.object.as_ref());
    let (attributes, visibility, name) = (&item.attrs, &item.vis, &item.ident);
    let hidden = parse::members_name(name);
    let redundancy = if arguments.copy {
        quote!(#object::hidden::LocalCopy<#hidden>)
    } else {
        quote!(#object::hidden::NoCopy)
    };
    let fields = members.iter().map(|member| &member.field);
    // What a local copy restores, it restores whole: a copied object has no protected things inside.
    let bound = if arguments.copy { quote!(#object::Summed) } else { quote!(#object::hidden::Member) };
    let class = class(&object, &bound, name, &hidden, &members);
    let critical = critical(&object, name, &hidden, &redundancy);

    Ok(quote! {
        #(#attributes)*
        #visibility struct #name {
            __critical: #object::hidden::Protected<#hidden, #redundancy>,
        }

        #[doc(hidden)]
        #[allow(missing_docs)]
        #visibility struct #hidden {
            __header: #object::hidden::Header,
            #(#fields,)*
        }

        #[automatically_derived]
        #[allow(dead_code)]
        impl #hidden {
            #[inline]
            fn object_id(&self) -> #object::ObjectId {
                self.__header.id()
            }
        }

        #[automatically_derived]
        #[allow(dead_code)]
        impl #name {
            /// Name of this object, equal on all replicas.
            #[inline]
            #visibility fn object_id(&self) -> #object::ObjectId {
                self.__critical.read().object_id()
            }
        }

        #class
        #critical
    })
}

/// What only the compiler knows about the members: their names, types and order.
fn class(
    object: &TokenStream,
    bound: &TokenStream,
    name: &syn::Ident,
    hidden: &syn::Ident,
    members: &[Member],
) -> TokenStream {
    let tracked: Vec<&Member> = members.iter().filter(|member| member.tracked).collect();
    let names: Vec<&syn::Ident> = tracked.iter().map(|member| &member.name).collect();
    let types: Vec<&syn::Type> = tracked.iter().map(|member| &member.field.ty).collect();
    let labels: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let fresh: Vec<syn::Ident> = (0..names.len()).map(|index| format_ident!("__m{index}")).collect();
    let untracked: Vec<&syn::Ident> = members.iter().filter(|m| !m.tracked).map(|m| &m.name).collect();
    let (walks, damage) = (walks(object, &names, &types), damage(object, &names, &types));
    // The bound is spelled once per member, at the member's type, so that the error for a type without a checksum
    // points there.
    let required = types.iter().map(|ty| {
        quote_spanned! { ty.span()=> const _: () = { const fn member<T: #bound>() {} member::<#ty>() }; }
    });
    quote! {
        #(#required)*

        #[automatically_derived]
        #[allow(unused_variables)]
        impl #object::hidden::Members for #hidden {
            const CLASS: &'static #object::hidden::Class = &#object::hidden::Class::new(
                ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                &[#(#labels),*],
            );
            #[inline]
            fn header(&self) -> &#object::hidden::Header {
                &self.__header
            }
            #[inline]
            fn header_mut(&mut self) -> &mut #object::hidden::Header {
                &mut self.__header
            }
            #[inline]
            fn sum(&self, summer: &mut #object::Summer) {
                #(<#types as #object::hidden::Member>::sum(&self.#names, summer);)*
            }
            fn pack(&self, packer: &mut #object::hidden::Packer<'_>) {
                #(packer.member(&self.#names);)*
            }
            fn replace(
                &mut self,
                reader: &mut #object::Reader<'_>,
            ) -> ::core::result::Result<(), #object::Malformed> {
                #(let #fresh = #object::hidden::unpack_member::<#types>(reader)?;)*
                reader.end()?;
                #(<#types as #object::hidden::Member>::install(&mut self.#names, #fresh);)*
                ::core::result::Result::Ok(())
            }
            fn blank(id: #object::ObjectId) -> Self {
                Self {
                    __header: #object::hidden::Header::blank(id),
                    #(#names: <#types as #object::hidden::Member>::blank(),)*
                    #(#untracked: ::core::default::Default::default(),)*
                }
            }
            fn sound(&self) -> bool {
                true #(&& <#types as #object::hidden::Member>::sound(&self.#names))*
            }
            #walks
            #damage
        }
    }
}

/// Ways to the protected things inside of the members.
fn walks(object: &TokenStream, names: &[&syn::Ident], types: &[&syn::Type]) -> TokenStream {
    let indices: Vec<usize> = (0..names.len()).collect();
    quote! {
        fn children<'a>(&'a self, visit: &mut dyn ::core::ops::FnMut(u8, #object::hidden::Child<'a>)) {
            #(<#types as #object::hidden::Member>::children(&self.#names, &mut |child| visit(#indices as u8, child));)*
        }
        fn children_mut<'a>(&'a mut self, visit: &mut dyn ::core::ops::FnMut(u8, #object::hidden::ChildMut<'a>)) {
            #(<#types as #object::hidden::Member>::children_mut(
                &mut self.#names,
                &mut |child| visit(#indices as u8, child),
            );)*
        }
        fn classes(visit: &mut dyn ::core::ops::FnMut(&'static #object::hidden::Class) -> bool) {
            if visit(Self::CLASS) {
                #(<#types as #object::hidden::Member>::classes(visit);)*
            }
        }
    }
}

/// Faults for the members, where `object` has the feature `inject`.
fn damage(object: &TokenStream, names: &[&syn::Ident], types: &[&syn::Type]) -> TokenStream {
    let indices = 0..names.len();
    quote! {
        #object::inject_only! {
            fn damage(&mut self, member: usize, damage: #object::hidden::Damage) -> bool {
                match member {
                    #(#indices => <#types as #object::hidden::Member>::damage(&mut self.#names, damage),)*
                    _ => false,
                }
            }
        }
    }
}

/// The outer type as a root of a region and as a member of other critical types.
fn critical(
    object: &TokenStream,
    name: &syn::Ident,
    hidden: &syn::Ident,
    redundancy: &TokenStream,
) -> TokenStream {
    quote! {
        #[automatically_derived]
        impl #object::Critical for #name {
            type Members = #hidden;
            type Redundancy = #redundancy;
            #[inline]
            fn protected(&self) -> &#object::hidden::Protected<#hidden, #redundancy> {
                &self.__critical
            }
            #[inline]
            fn protected_mut(&mut self) -> &mut #object::hidden::Protected<#hidden, #redundancy> {
                &mut self.__critical
            }
            #[inline]
            fn from_protected(protected: #object::hidden::Protected<#hidden, #redundancy>) -> Self {
                Self { __critical: protected }
            }
        }

        #object::critical_member!(#name);
    }
}
