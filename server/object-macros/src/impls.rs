//! Expands `#[critical]` on an impl: the entry checks are woven around the methods.
//!
//! A method becomes two. The outer one has the author's signature; it gets the members from `object::Protected`, which
//! checks them, and calls the inner one, whose body is the author's and whose `self` is the hidden struct of members.
//! There the members are plain places (the borrow checker distinguishes them), and a call of another method of the same
//! object costs no second check. `unsafe` stands in expanded text only, where the author's own method is `unsafe`.

use crate::parse::Arguments;
use crate::{check, home, parse};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::visit_mut::{self, VisitMut};

/// The woven impl and the impl of the inner methods.
pub fn expand(arguments: &Arguments, mut item: syn::ItemImpl) -> syn::Result<TokenStream> {
    let object = home::object_path(arguments.object.as_ref());
    let outer = outer_path(&item)?;
    let named = |name: fn(&syn::Ident) -> syn::Ident| {
        let mut path = outer.clone();
        if let Some(last) = path.segments.last_mut() {
            last.ident = name(&last.ident);
        }
        path
    };
    let hidden = named(parse::members_name);
    let views = Views { through: named(parse::view_name), hot: named(parse::hot_view_name) };
    let of_trait = item.trait_.as_ref().map(|(_, path, _)| path.clone());
    let mut weaver = Weaver { object, outer, hidden, views, of_trait, inner: false };

    let (mut inner_methods, mut passing_methods, mut hot_methods) = (Vec::new(), Vec::new(), Vec::new());
    for part in &mut item.items {
        match part {
            syn::ImplItem::Fn(method) if method.sig.receiver().is_some() => {
                check::method(&method.sig)?;
                let entry = MethodEntry::of(method)?;
                let inner = split(&mut weaver, method, entry);
                match entry {
                    MethodEntry::Through => passing_methods.push(inner),
                    MethodEntry::Hot => hot_methods.push(inner),
                    MethodEntry::Plain => inner_methods.push(inner),
                }
            }
            syn::ImplItem::Fn(function) => {
                weaver.inner = false;
                weaver.visit_block_mut(&mut function.block);
            }
            _ => {}
        }
    }
    let hidden = &weaver.hidden;
    let of_view = |view: &syn::Path, methods: Vec<syn::ImplItemFn>| {
        (!methods.is_empty()).then(|| {
            quote! {
                #[allow(dead_code, missing_docs, non_snake_case, clippy::all)]
                impl<'__inside> #view<'__inside> {
                    #(#methods)*
                }
            }
        })
    };
    let passing = of_view(&weaver.views.through, passing_methods);
    let hot = of_view(&weaver.views.hot, hot_methods);
    Ok(quote! {
        #item

        #passing
        #hot

        #[allow(dead_code, missing_docs, non_snake_case, clippy::all)]
        impl #hidden {
            #(#inner_methods)*
        }
    })
}

/// How a method enters the object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MethodEntry {
    /// As its receiver says.
    Plain,
    /// `#[through]`: it may change what is in the object's stores.
    Through,
    /// `#[hot]`: it may change the hot members.
    Hot,
}

impl MethodEntry {
    /// The entry of a method; removes its mark.
    fn of(method: &mut syn::ImplItemFn) -> syn::Result<Self> {
        let through = parse::take_mark(&mut method.attrs, "through")?;
        let hot = parse::take_mark(&mut method.attrs, "hot")?;
        let (entry, mark, what) = match (through, hot) {
            (None, None) => return Ok(MethodEntry::Plain),
            (Some(mark), None) => (
                MethodEntry::Through,
                mark,
                "what is in the object's stores, and nothing of the object itself",
            ),
            (None, Some(mark)) => (MethodEntry::Hot, mark, "the object's `#[hot]` members, and no other"),
            (Some(_), Some(mark)) => {
                return Err(syn::Error::new_spanned(mark, "a method is either #[through] or #[hot]"));
            }
        };
        let is_exclusive = |receiver: &syn::Receiver| {
            receiver.reference.is_some() && receiver.mutability.is_some() && receiver.colon_token.is_none()
        };
        if !method.sig.receiver().is_some_and(is_exclusive) {
            let name = mark.path().to_token_stream();
            let message = format!("#[{name}] is for methods with `&mut self`: it lets them change {what}");
            return Err(syn::Error::new_spanned(mark, message));
        }
        Ok(entry)
    }
}

/// The receiver of a method of the view is the view itself, so that what the method returns may outlive it.
fn receive_view(signature: &mut syn::Signature) {
    if let Some(receiver) = signature.inputs.first_mut() {
        *receiver = syn::parse_quote!(self);
    }
    if let syn::ReturnType::Type(_, ty) = &mut signature.output {
        NameElided.visit_type_mut(ty);
    }
}

/// Turns the author's method into the outer one and returns the inner one, which may be that of a view.
fn split(weaver: &mut Weaver, method: &mut syn::ImplItemFn, entry: MethodEntry) -> syn::ImplItemFn {
    let mut inner = method.clone();
    inner.vis = syn::Visibility::Inherited;
    inner.attrs.retain(|attribute| {
        ["cfg", "inline", "allow", "expect"].iter().any(|kept| attribute.path().is_ident(kept))
    });
    inner.attrs.push(syn::parse_quote!(#[inline]));
    if inner.attrs.iter().filter(|attribute| attribute.path().is_ident("inline")).count() > 1 {
        inner.attrs.pop();
    }
    if let Some(of_trait) = &weaver.of_trait {
        let name = of_trait.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        inner.sig.ident = format_ident!("__{}_{}", name, method.sig.ident);
    }
    weaver.inner = true;
    weaver.visit_signature_mut(&mut inner.sig);
    weaver.visit_block_mut(&mut inner.block);
    if entry != MethodEntry::Plain {
        receive_view(&mut inner.sig);
    }

    let mut arguments = Vec::new();
    for (index, input) in method.sig.inputs.iter_mut().enumerate() {
        match input {
            syn::FnArg::Typed(typed) => {
                let name = format_ident!("__a{index}");
                *typed.pat = syn::parse_quote!(#name);
                arguments.push(name);
            }
            // `mut self` matters to the inner method only.
            syn::FnArg::Receiver(receiver) if receiver.reference.is_none() => receiver.mutability = None,
            syn::FnArg::Receiver(_) => {}
        }
    }
    let name = &inner.sig.ident;
    let hidden = match entry {
        MethodEntry::Plain => &weaver.hidden,
        MethodEntry::Through => &weaver.views.through,
        MethodEntry::Hot => &weaver.views.hot,
    };
    let entry = match method.sig.receiver() {
        _ if entry == MethodEntry::Through => quote!(self.__needs_critical_on_the_impl.through().__through()),
        _ if entry == MethodEntry::Hot => quote!(self.__needs_critical_on_the_impl.write_hot().__hot()),
        Some(receiver) if receiver.reference.is_none() => quote!(self.__needs_critical_on_the_impl.take()),
        Some(receiver) if receiver.mutability.is_some() => quote!(self.__needs_critical_on_the_impl.write()),
        _ => quote!(self.__needs_critical_on_the_impl.read()),
    };
    method.block = if method.sig.unsafety.is_some() {
        syn::parse_quote!({
            #[allow(clippy::undocumented_unsafe_blocks)]
            unsafe { #hidden::#name(#entry #(, #arguments)*) }
        })
    } else {
        syn::parse_quote!({ #hidden::#name(#entry #(, #arguments)*) })
    };
    method.attrs.push(syn::parse_quote!(#[allow(dead_code)]));
    if weaver.of_trait.is_none() {
        method.attrs.push(syn::parse_quote!(#[inline]));
        if method.attrs.iter().filter(|attribute| attribute.path().is_ident("inline")).count() > 1 {
            method.attrs.pop();
        }
    }
    inner
}

fn outer_path(item: &syn::ItemImpl) -> syn::Result<syn::Path> {
    match &*item.self_ty {
        syn::Type::Path(path) if path.qself.is_none() && item.generics.params.is_empty() => {
            Ok(path.path.clone())
        }
        other => Err(syn::Error::new_spanned(
            other,
            "#[critical] weaves an impl of a critical struct, without parameters",
        )),
    }
}

/// The hidden structs that methods of these kinds have for their `self`.
struct Views {
    through: syn::Path,
    hot: syn::Path,
}

/// Rewrites the author's bodies: literals of the type get their header, and inside an inner method `Self` is the
/// author's type again.
struct Weaver {
    object: TokenStream,
    outer: syn::Path,
    hidden: syn::Path,
    views: Views,
    of_trait: Option<syn::Path>,
    inner: bool,
}

impl Weaver {
    fn names_the_type(&self, path: &syn::Path) -> bool {
        path.is_ident("Self")
            || path.to_token_stream().to_string() == self.outer.to_token_stream().to_string()
            || (path.segments.len() == 1
                && path.segments.last().map(|last| &last.ident)
                    == self.outer.segments.last().map(|last| &last.ident))
    }
}

impl VisitMut for Weaver {
    fn visit_expr_mut(&mut self, expression: &mut syn::Expr) {
        if let syn::Expr::Struct(literal) = expression
            && literal.qself.is_none()
            && self.names_the_type(&literal.path)
        {
            for field in &mut literal.fields {
                self.visit_expr_mut(&mut field.expr);
            }
            let (object, outer, hidden, fields) = (&self.object, &self.outer, &self.hidden, &literal.fields);
            let comma = if fields.empty_or_trailing() { None } else { Some(quote!(,)) };
            let rest = literal.rest.as_ref().map(|rest| quote!(..#rest));
            *expression = syn::parse_quote! {
                <#outer as #object::Critical>::from_protected(#object::hidden::Protected::new(#hidden {
                    __header: #object::hidden::Front::new(<#hidden as #object::hidden::Members>::CLASS),
                    #fields #comma #rest
                }))
            };
            return;
        }
        visit_mut::visit_expr_mut(self, expression);
    }

    fn visit_pat_struct_mut(&mut self, pattern: &mut syn::PatStruct) {
        if self.inner && pattern.qself.is_none() && self.names_the_type(&pattern.path) {
            pattern.path = self.hidden.clone();
            if pattern.rest.is_none() {
                if !pattern.fields.empty_or_trailing() {
                    pattern.fields.push_punct(Default::default());
                }
                pattern.rest = Some(syn::PatRest { attrs: Vec::new(), dot2_token: Default::default() });
            }
        }
        for field in &mut pattern.fields {
            self.visit_field_pat_mut(field);
        }
    }

    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        visit_mut::visit_path_mut(self, path);
        if !self.inner
            || path.leading_colon.is_some()
            || path.segments.first().is_none_or(|first| first.ident != "Self")
        {
            return;
        }
        let rest: Vec<syn::PathSegment> = path.segments.iter().skip(1).cloned().collect();
        path.segments = self.outer.segments.clone();
        path.leading_colon = self.outer.leading_colon;
        path.segments.extend(rest);
    }

    fn visit_type_mut(&mut self, ty: &mut syn::Type) {
        // `Self::Output` in a trait's impl means the trait's type, which the author's type alone does not name.
        if self.inner
            && let (Some(of_trait), syn::Type::Path(path)) = (&self.of_trait, &*ty)
            && path.qself.is_none()
            && path.path.segments.len() == 2
            && path.path.segments.first().is_some_and(|first| first.ident == "Self")
        {
            let (outer, last) = (&self.outer, path.path.segments.last());
            *ty = syn::parse_quote!(<#outer as #of_trait>::#last);
            return;
        }
        visit_mut::visit_type_mut(self, ty);
    }

    // The type behind `&self` stays as written: here it means the inner `self`.
    fn visit_receiver_mut(&mut self, _receiver: &mut syn::Receiver) {}

    // An item inside a body has a `Self` of its own.
    fn visit_item_mut(&mut self, _item: &mut syn::Item) {}
}

/// Gives elided lifetimes of a returned type the view's.
struct NameElided;

impl VisitMut for NameElided {
    fn visit_type_reference_mut(&mut self, reference: &mut syn::TypeReference) {
        reference.lifetime.get_or_insert_with(|| syn::parse_quote!('__inside));
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut syn::Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = syn::parse_quote!('__inside);
        }
    }
}
