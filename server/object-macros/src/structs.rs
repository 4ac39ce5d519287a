//! Expands `#[critical]` on a struct: the members move behind `object::Protected`.

use crate::history::Versions;
use crate::parse::{Arguments, Member};
use crate::{check, home, parse, refuse, versions};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// The outer struct, the hidden struct of its members, and what `object` needs to know about both.
pub fn expand(arguments: &Arguments, item: syn::ItemStruct) -> syn::Result<TokenStream> {
    let fields = check::structure(&item)?;
    let members = parse::members(fields)?;
    check::members(&members)?;
    check::copies(arguments.copy, &members)?;
    let history = Versions::of(arguments, &members)?;

    let object = home::object_path(arguments.object.as_ref());
    let (attributes, visibility, name) = (&item.attrs, &item.vis, &item.ident);
    let hidden = parse::members_name(name);
    let redundancy = if arguments.copy {
        quote!(#object::hidden::LocalCopy<#hidden>)
    } else {
        quote!(#object::hidden::NoCopy)
    };
    let fields = members.iter().map(|member| &member.field);
    // A local copy restores the whole object: a copied object has no protected things inside.
    let required = members
        .iter()
        .filter(|member| member.tracked)
        .map(|member| refuse::unless_summed(&object, name, member, arguments.copy));
    let class = class(&object, (name, &hidden), &history, &members);
    let versioned = versions::methods(&object, &hidden, &history, &members);
    let front = history.front(&object);
    let critical = critical(&object, name, &hidden, &redundancy);
    let through_view = through_view(&object, visibility, (name, &hidden), &members);
    let hot_view = hot_view(visibility, (name, &hidden), &members);

    Ok(quote! {
        #(#attributes)*
        #visibility struct #name {
            __needs_critical_on_the_impl: #object::hidden::Protected<#hidden, #redundancy>,
        }

        #[doc(hidden)]
        #[allow(missing_docs)]
        #visibility struct #hidden {
            __header: #front,
            #(#fields,)*
        }

        #[automatically_derived]
        #[allow(dead_code)]
        impl #hidden {
            #[inline]
            fn object_id(&self) -> #object::ObjectId {
                #object::hidden::Front::header(&self.__header).id()
            }
        }

        #[automatically_derived]
        #[allow(dead_code)]
        impl #name {
            /// Name of this object, equal on all replicas.
            #[inline]
            #visibility fn object_id(&self) -> #object::ObjectId {
                self.__needs_critical_on_the_impl.read().object_id()
            }
        }

        #(#required)*

        #class
        #versioned
        #critical
        #through_view
        #hot_view
    })
}

/// What a method that passes through the object has for its `self`: the members to read, and the objects in its
/// stores to change. Nothing for a struct without stores.
fn through_view(
    object: &TokenStream,
    visibility: &syn::Visibility,
    (name, hidden): (&syn::Ident, &syn::Ident),
    members: &[Member],
) -> TokenStream {
    let is_store = |member: &Member| parse::is_store(&member.field.ty);
    view(visibility, (&parse::view_name(name), hidden, "__through"), members, is_store, |member| {
        let (name, ty) = (&member.name, &member.field.ty);
        let ty = quote!(<#ty as #object::hidden::Through>::Inside<'__inside>);
        (ty, quote!(#object::hidden::Through::inside(&mut self.#name)))
    })
}

/// What a method that changes hot members has for its `self`: these to change, and the others to read. Nothing for a
/// struct without hot members.
fn hot_view(
    visibility: &syn::Visibility,
    (name, hidden): (&syn::Ident, &syn::Ident),
    members: &[Member],
) -> TokenStream {
    view(
        visibility,
        (&parse::hot_view_name(name), hidden, "__hot"),
        members,
        |member| member.hot,
        |member| {
            let (name, ty) = (&member.name, &member.field.ty);
            (quote!(&'__inside mut #ty), quote!(&mut self.#name))
        },
    )
}

/// A view of the members: the chosen ones as `change` gives them (type and value), the others to read.
fn view(
    visibility: &syn::Visibility,
    (view, hidden, method): (&syn::Ident, &syn::Ident, &str),
    members: &[Member],
    is_chosen: impl Fn(&Member) -> bool,
    change: impl Fn(&Member) -> (TokenStream, TokenStream),
) -> TokenStream {
    if !members.iter().any(&is_chosen) {
        return TokenStream::new();
    }
    let names: Vec<&syn::Ident> = members.iter().map(|member| &member.name).collect();
    let (types, values): (Vec<TokenStream>, Vec<TokenStream>) = members
        .iter()
        .map(|member| {
            let (name, ty) = (&member.name, &member.field.ty);
            if is_chosen(member) { change(member) } else { (quote!(&'__inside #ty), quote!(&self.#name)) }
        })
        .unzip();
    let method = format_ident!("{method}");
    quote! {
        #[doc(hidden)]
        #[allow(missing_docs, dead_code)]
        #visibility struct #view<'__inside> {
            #(#names: #types,)*
        }

        #[automatically_derived]
        #[allow(dead_code)]
        impl #hidden {
            #[inline]
            fn #method(&mut self) -> #view<'_> {
                #view { #(#names: #values,)* }
            }
        }
    }
}

/// The hot members as one word, and back.
fn hot_words(object: &TokenStream, members: &[Member]) -> TokenStream {
    let hot: Vec<&Member> = members.iter().filter(|member| member.hot).collect();
    if hot.is_empty() {
        return TokenStream::new();
    }
    let names: Vec<&syn::Ident> = hot.iter().map(|member| &member.name).collect();
    let types: Vec<&syn::Type> = hot.iter().map(|member| &member.field.ty).collect();
    let shifts: Vec<u32> = (0..hot.len() as u32).map(|index| index * u32::BITS).collect();
    quote! {
        #[inline]
        fn hot(&self) -> u64 {
            0 #(| u64::from(<#types as #object::HotWord>::to_word(self.#names)) << #shifts)*
        }
        #[inline]
        fn set_hot(&mut self, words: u64) {
            #(self.#names = <#types as #object::HotWord>::from_word((words >> #shifts) as u32);)*
        }
    }
}

/// Data that only the compiler has about the members: their names, types and order, in each version.
fn class(
    object: &TokenStream,
    (name, hidden): (&syn::Ident, &syn::Ident),
    history: &Versions,
    members: &[Member],
) -> TokenStream {
    let tracked: Vec<&Member> = members.iter().filter(|member| member.tracked).collect();
    let (names, types) = names_and_types(&tracked);
    let untracked: Vec<&syn::Ident> = members.iter().filter(|m| !m.tracked).map(|m| &m.name).collect();
    // In each function: for a type that is no member, the error of `refuse` must be the only one.
    let stand_in = quote! {
        #[allow(unused_imports)]
        use #object::hidden::Neither as _;
    };
    let (class, older) = versions::class(object, (name, hidden), history, members);
    let of_versions = versions::functions(object, history, members);
    let facts = facts(object, &stand_in, &types);
    let bytes = bytes(object, &stand_in, history, members);
    let hot_words = hot_words(object, members);
    let walks = walks(object, &stand_in, &names, &types);
    let damage = damage(object, &stand_in, history, members);
    quote! {
        #older

        #[automatically_derived]
        #[allow(unused_variables)]
        impl #object::hidden::Members for #hidden {
            const CLASS: &'static #object::hidden::Class = &#class;
            #facts
            #[inline]
            fn header(&self) -> &#object::hidden::Header {
                #object::hidden::Front::header(&self.__header)
            }
            #[inline]
            fn header_mut(&mut self) -> &mut #object::hidden::Header {
                #object::hidden::Front::header_mut(&mut self.__header)
            }
            #of_versions
            #bytes
            #hot_words
            fn blank(id: #object::ObjectId) -> Self {
                #stand_in
                Self {
                    __header: #object::hidden::Front::blank(<Self as #object::hidden::Members>::CLASS, id),
                    #(#names: <#object::hidden::Of<#types>>::blank(),)*
                    #(#untracked: ::core::default::Default::default(),)*
                }
            }
            fn is_intact(&self) -> bool {
                #stand_in
                true #(&& <#object::hidden::Of<#types>>::is_intact(&self.#names))*
            }
            #walks
            #damage
        }
    }
}

fn names_and_types<'a>(members: &[&'a Member]) -> (Vec<&'a syn::Ident>, Vec<&'a syn::Type>) {
    members.iter().map(|member| (&member.name, &member.field.ty)).unzip()
}

/// The members as bytes: summed, packed and put back, each version for itself.
fn bytes(
    object: &TokenStream,
    stand_in: &TokenStream,
    history: &Versions,
    members: &[Member],
) -> TokenStream {
    let has_hot = members.iter().any(|member| member.hot);
    let sum_hot = has_hot.then(|| quote!(summer.hot(#object::hidden::Members::hot(self));));
    let sum = history.choose(&quote!(version), |version| {
        let mut cold = versions::members_of(version, members);
        cold.retain(|member| !member.hot);
        let (cold, cold_types) = names_and_types(&cold);
        sum(object, (&cold, &cold_types), sum_hot.as_ref())
    });
    let pack = history.choose(&quote!(self.__header.version()), |version| {
        let (names, types) = names_and_types(&versions::members_of(version, members));
        quote!(#(<#object::hidden::Of<#types>>::pack(&self.#names, packer);)*)
    });
    let replace = history.choose(&quote!(version), |version| {
        let (names, types) = names_and_types(&versions::members_of(version, members));
        let fresh: Vec<syn::Ident> = (0..names.len()).map(|index| format_ident!("__m{index}")).collect();
        quote! {
            #(let #fresh = <#object::hidden::Of<#types>>::unpack(reader)?;)*
            reader.end()?;
            #(<#object::hidden::Of<#types>>::install(&mut self.#names, #fresh);)*
        }
    });
    quote! {
        #[inline]
        #[allow(unused_assignments, unused_mut)]
        fn sum(&self, version: u16, summer: &mut #object::Summer) {
            #stand_in
            #sum
        }
        fn pack(&self, packer: &mut #object::hidden::Packer<'_>) {
            #stand_in
            #pack
        }
        fn replace(
            &mut self,
            version: u16,
            reader: &mut #object::Reader<'_>,
        ) -> ::core::result::Result<(), #object::Malformed> {
            #stand_in
            #replace
            ::core::result::Result::Ok(())
        }
    }
}

/// What is known of the members when this is compiled.
fn facts(object: &TokenStream, stand_in: &TokenStream, types: &[&syn::Type]) -> TokenStream {
    quote! {
        const HAS_CHILDREN: bool = {
            #stand_in
            false #(|| <#object::hidden::Of<#types>>::IS_CHILD)*
        };
        const IS_FLAT: bool = {
            #stand_in
            true #(&& <#object::hidden::Of<#types>>::IS_FLAT)*
        };
    }
}

/// Adds the members that are not hot to the checksum, and then the hot ones.
fn sum(
    object: &TokenStream,
    (cold, cold_types): (&[&syn::Ident], &[&syn::Type]),
    sum_hot: Option<&TokenStream>,
) -> TokenStream {
    quote! {
        // Members that always add the same number of bytes are added with their neighbours in one call. Which
        // these are is known when this is compiled, as are all places in the array.
        let mut fixed = [0u8; 0 #(+ <#object::hidden::Of<#cold_types>>::FIXED)*];
        let (mut from, mut at) = (0, 0);
        #(if <#object::hidden::Of<#cold_types>>::FIXED > 0 {
            let place = &mut fixed[at..at + <#object::hidden::Of<#cold_types>>::FIXED];
            <#object::hidden::Of<#cold_types>>::put(&self.#cold, place);
            at += <#object::hidden::Of<#cold_types>>::FIXED;
        } else {
            summer.bytes(&fixed[from..at]);
            from = at;
            <#object::hidden::Of<#cold_types>>::sum(&self.#cold, summer);
        })*
        summer.bytes(&fixed[from..at]);
        #sum_hot
    }
}

/// Ways to the protected things inside of the members.
fn walks(
    object: &TokenStream,
    stand_in: &TokenStream,
    names: &[&syn::Ident],
    types: &[&syn::Type],
) -> TokenStream {
    let indices: Vec<usize> = (0..names.len()).collect();
    quote! {
        fn children<'a>(&'a self, visit: &mut dyn ::core::ops::FnMut(u8, #object::hidden::Child<'a>)) {
            #stand_in
            #(<#object::hidden::Of<#types>>::children(&self.#names, &mut |child| visit(#indices as u8, child));)*
        }
        fn children_mut<'a>(&'a mut self, visit: &mut dyn ::core::ops::FnMut(u8, #object::hidden::ChildMut<'a>)) {
            #stand_in
            #(<#object::hidden::Of<#types>>::children_mut(&mut self.#names, &mut |child| {
                visit(#indices as u8, child)
            });)*
        }
        fn classes(visit: &mut dyn ::core::ops::FnMut(&'static #object::hidden::Class) -> bool) {
            #stand_in
            if visit(Self::CLASS) {
                #(<#object::hidden::Of<#types>>::classes(visit);)*
            }
        }
    }
}

/// Faults for the members, where `object` has the feature `inject`: those of the object's version by the numbers that
/// they have there, and then the others.
fn damage(
    object: &TokenStream,
    stand_in: &TokenStream,
    history: &Versions,
    members: &[Member],
) -> TokenStream {
    let damage = history.choose(&quote!(self.__header.version()), |version| {
        let (own, others): (Vec<&Member>, Vec<&Member>) =
            members.iter().filter(|member| member.tracked).partition(|member| member.history.has(version));
        let (names, types) = names_and_types(&[own, others].concat());
        let indices = 0..names.len();
        quote! {
            match member {
                #(#indices => <#object::hidden::Of<#types>>::damage(&mut self.#names, damage),)*
                _ => false,
            }
        }
    });
    quote! {
        #object::inject_only! {
            fn damage(&mut self, member: usize, damage: #object::hidden::Damage) -> bool {
                #stand_in
                #damage
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
                &self.__needs_critical_on_the_impl
            }
            #[inline]
            fn protected_mut(&mut self) -> &mut #object::hidden::Protected<#hidden, #redundancy> {
                &mut self.__needs_critical_on_the_impl
            }
            #[inline]
            fn from_protected(protected: #object::hidden::Protected<#hidden, #redundancy>) -> Self {
                Self { __needs_critical_on_the_impl: protected }
            }
        }

        #object::critical_member!(#name);
    }
}
