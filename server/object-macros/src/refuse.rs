//! Reports a type that cannot be a member once, at compile time: the member, its struct, and the remedy.

use crate::parse::Member;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};

/// Fails the build at the member's type, if `object` knows no checksum for it. `copied`: the struct keeps a local copy.
pub fn unless_summed(object: &TokenStream, name: &syn::Ident, member: &Member, copied: bool) -> TokenStream {
    let ty = &member.field.ty;
    let is_one = if copied { quote!(IS_SUMMED) } else { quote!(IS_MEMBER) };
    let parts = Parts::of(ty);
    let subject = format!("member `{}` of `{name}` cannot be summed", member.name);
    let inner = &parts.inner;
    let of_critical = inner.iter().map(|inner| format!("{subject}: {}", inside(inner)));
    let why = format!("{subject}: {}", parts.remedy(ty, copied));
    quote_spanned! { ty.span()=>
        const _: () = {
            #[allow(unused_imports)]
            use #object::hidden::Neither as _;
            if !<#object::hidden::Of<#ty>>::#is_one {
                #(if <#object::hidden::Of<#inner>>::IS_CRITICAL {
                    ::core::panic!("{}", #of_critical);
                })*
                ::core::panic!("{}", #why);
            }
        };
    }
}

/// A critical type inside of a container that sums its elements.
fn inside(ty: &syn::Type) -> String {
    let ty = text(ty);
    format!(
        "`{ty}` is critical, so it is an object of its own and cannot be inside of another value. Keep the objects in \
         a member `Store<{ty}>` and write `Ref<{ty}>` here"
    )
}

/// The parts of a type, as it is written.
#[derive(Default)]
struct Parts {
    /// The types inside of the member's type; not those in a `Ref` or `Store`.
    inner: Vec<syn::Type>,
    /// Last segments of all paths.
    names: Vec<String>,
    /// A reference or pointer, or a boxed trait.
    points: bool,
    /// The member is a store itself.
    is_store: bool,
    depth: usize,
}

impl Parts {
    fn of(ty: &syn::Type) -> Self {
        let mut parts = Parts::default();
        parts.visit_type_mut(&mut ty.clone());
        parts
    }

    fn remedy(&self, ty: &syn::Type, copied: bool) -> String {
        let has = |names: &[&str]| self.names.iter().any(|name| names.contains(&name.as_str()));
        if copied && has(&["Store"]) {
            return "a `#[critical(copy)]` type is restored as a whole, so it has no `Store` and no critical member"
                .to_owned();
        }
        if self.is_store {
            return "a `Store` holds objects of a critical type: put `#[critical]` on the struct in it"
                .to_owned();
        }
        if has(&["Store"]) {
            return "a `Store` is a member of its own, never inside of another value".to_owned();
        }
        if has(&["HashMap", "HashSet", "IndexMap", "IndexSet"]) {
            return "replicas would iterate over a hash map in different orders. Use `BTreeMap` or `BTreeSet`, or a \
                    `Store` with `Ref`s"
                .to_owned();
        }
        if has(&["f32", "f64"]) {
            return "a float is not equal to itself for every bit pattern (NaN). Use integers of the smallest unit, or \
                    keep `to_bits()`"
                .to_owned();
        }
        if self.points || has(&["Rc", "Arc", "Weak", "NonNull"]) {
            return "an address differs from replica to replica. Refer to an object by `Ref<T>` or `ObjectId`, and \
                    own a value (`Box<T>`, `Box<str>`, `Vec<T>`)"
                .to_owned();
        }
        let shared = ["Cell", "RefCell", "UnsafeCell", "OnceCell", "OnceLock", "Mutex", "RwLock", "LazyLock"];
        if has(&shared) || self.names.iter().any(|name| name.starts_with("Atomic")) {
            let why = "it can change behind `&self`, past the checksum.";
            return format!("{why} Change a plain value in a method with `&mut self`");
        }
        if has(&["Map", "Set", "Queue", "Table"]) {
            return "a collection of objects is a member of its own, never inside of another value. Its keys, and the \
                    values of a `Map` or a `Queue`, are value types with `#[derive(Summed)]`; those of a `Table` are \
                    structs with `#[critical]`"
                .to_owned();
        }
        let ty = text(ty);
        format!(
            "there is no checksum for `{ty}`. If it is a value type of yours, write `#[derive(Summed)]` on it. If \
             it is of another crate, wrap it in a struct of yours and implement `object::Summed` for that (its \
             documentation has an example). Write `#[uncritical]` on the member only if its corruption can never \
             reach a reply"
        )
    }
}

impl VisitMut for Parts {
    fn visit_type_mut(&mut self, ty: &mut syn::Type) {
        if self.depth > 0 && matches!(ty, syn::Type::Path(_)) {
            self.inner.push(ty.clone());
        }
        self.points |= matches!(
            ty,
            syn::Type::Reference(_) | syn::Type::Ptr(_) | syn::Type::TraitObject(_) | syn::Type::BareFn(_)
        );
        let last = match &*ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let is_known = matches!(last.as_deref(), Some("Ref" | "Store"));
        self.is_store |= self.depth == 0 && last.as_deref() == Some("Store");
        self.names.extend(last);
        if !is_known {
            self.depth += 1;
            visit_mut::visit_type_mut(self, ty);
            self.depth -= 1;
        }
    }
}

/// A type as an author writes it.
fn text(ty: &syn::Type) -> String {
    let spaced = ty.to_token_stream().to_string();
    let tight =
        [(" < ", "<"), (" <", "<"), ("< ", "<"), (" >", ">"), (" ,", ","), (" :: ", "::"), ("& ", "&")];
    tight.iter().fold(spaced, |text, (from, to)| text.replace(from, to))
}
