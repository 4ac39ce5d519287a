//! Reads and checks what an author says of the versions of a struct: which members came, went, or had another name.

use std::collections::BTreeSet;

use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::{Attribute, Error, Result, Token};

use crate::parse::{Arguments, Member};

/// The version of a struct that never changed.
const FIRST: u16 = 1;

/// The versions that have a member, and its names in them.
#[derive(Default)]
pub struct History {
    /// The first version that has it, where that is not the struct's first one.
    pub since: Option<Mark>,
    /// Its value in an object of an earlier version; none is the type's default.
    pub default: Option<syn::Expr>,
    /// The first version that has it no more.
    pub until: Option<Mark>,
    /// Its name before each of these versions.
    renamed: Vec<(Mark, String)>,
}

/// A version in an attribute.
#[derive(Clone, Copy)]
pub struct Mark {
    /// The version.
    pub version: u16,
    span: Span,
}

/// The versions of a struct.
pub struct Versions {
    /// All but the newest, in their order.
    pub older: Vec<u16>,
    /// The newest.
    pub newest: u16,
}

impl History {
    /// The history in these attributes; removes them.
    pub fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut history = History::default();
        let ours = ["since", "until", "renamed"];
        let is_ours = |attribute: &mut Attribute| ours.iter().any(|name| attribute.path().is_ident(name));
        for attribute in attributes.extract_if(.., is_ours) {
            let span = attribute.path().segments[0].ident.span();
            let (mut version, mut value) = (0, None);
            attribute.parse_args_with(|input: ParseStream<'_>| {
                version = input.parse::<syn::LitInt>()?.base10_parse()?;
                if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
                    let name: syn::Ident = input.parse()?;
                    input.parse::<Token![=]>()?;
                    value = Some((name, input.parse::<syn::Expr>()?));
                }
                Ok(())
            })?;
            let mark = Mark { version, span };
            let is = |name: &str| attribute.path().is_ident(name);
            match value {
                None if is("since") => history.since = Some(mark),
                None if is("until") => history.until = Some(mark),
                Some((name, value)) if is("since") && name == "default" => {
                    (history.since, history.default) = (Some(mark), Some(value));
                }
                Some((name, syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(from), .. })))
                    if is("renamed") && name == "from" =>
                {
                    history.renamed.push((mark, from.value()));
                }
                _ => return Err(Error::new(span, MARKS)),
            }
        }
        history.renamed.sort_by_key(|(mark, _)| mark.version);
        Ok(history)
    }

    /// The first version that has the member, counted from [`FIRST`].
    pub fn since_or_first(&self) -> u16 {
        self.since.map_or(FIRST, |mark| mark.version)
    }

    /// Whether this version has the member.
    pub fn has(&self, version: u16) -> bool {
        self.since_or_first() <= version && self.until.is_none_or(|mark| version < mark.version)
    }

    /// The name of a member in a version, which is `name` now.
    pub fn name_in(&self, version: u16, name: &syn::Ident) -> String {
        let before = self.renamed.iter().find(|(mark, _)| version < mark.version);
        before.map_or_else(|| name.to_string(), |(_, from)| from.clone())
    }

    fn marks(&self) -> impl Iterator<Item = Mark> {
        let renamed = self.renamed.iter().map(|(mark, _)| *mark);
        self.since.into_iter().chain(self.until).chain(renamed)
    }
}

const MARKS: &str = "the marks of a changed member are #[since(N)] or #[since(N, default = VALUE)], #[until(N)], and \
                     #[renamed(N, from = \"NAME\")], where N is the version that has changed it";

impl Versions {
    /// The versions of a struct with these members.
    pub fn of(arguments: &Arguments, members: &[Member]) -> Result<Self> {
        let first = arguments.since.map_or(FIRST, |(version, _)| version);
        if let Some((_, span)) = arguments.since.filter(|(version, _)| *version <= FIRST) {
            let message =
                "a type is of version 1 without a mark; `since = N` is for one that came in a later version";
            return Err(Error::new(span, message));
        }
        let newest = arguments.version.map_or(first, |(version, _)| version);
        let mut versions = BTreeSet::from([first]);
        for member in members {
            check_marks(member, (first, newest), arguments.version.is_some())?;
            versions.extend(member.history.marks().map(|mark| mark.version));
        }
        if let Some((version, span)) =
            arguments.version.filter(|(version, _)| !versions.contains(version) || *version == first)
        {
            let message = format!(
                "no member has changed in version {version}: mark those that have with #[since({version})], \
                 #[until({version})] or #[renamed({version}, from = \"NAME\")], or write the version of the last change"
            );
            return Err(Error::new(span, message));
        }
        versions.remove(&newest);
        Ok(Versions { older: versions.into_iter().collect(), newest })
    }
}

/// Refuses marks of a member that are none of the struct's versions, with the remedy.
fn check_marks(member: &Member, (first, newest): (u16, u16), has_version: bool) -> Result<()> {
    let (history, name) = (&member.history, &member.name);
    for mark in history.marks() {
        let version = mark.version;
        let message = if !member.tracked {
            format!("member `{name}` is `#[uncritical]`, and so of no version: remove the mark")
        } else if version <= first {
            format!(
                "version {version} is not behind the first one of this type, which is {first}: remove the mark"
            )
        } else if version > newest && has_version {
            format!(
                "member `{name}` changes in version {version}, and the type is of version {newest}: write \
                 `#[critical(version = {version})]`, or the version in which the member changed"
            )
        } else if version > newest {
            format!(
                "member `{name}` changes in version {version}, and the type has no version: write \
                 `#[critical(version = {version})]`"
            )
        } else {
            continue;
        };
        return Err(Error::new(mark.span, message));
    }
    if let Some(mark) = history.since.or(history.until).filter(|_| member.hot) {
        let message = "a `#[hot]` member is in all versions of its type: leave the mark `#[hot]` out";
        return Err(Error::new(mark.span, message));
    }
    if let Some(until) = history.until.filter(|until| until.version <= history.since_or_first()) {
        let message =
            format!("member `{name}` is in no version: its #[until(..)] is not behind its #[since(..)]");
        return Err(Error::new(until.span, message));
    }
    Ok(())
}

/// A version as the value of an argument.
pub fn number(input: ParseStream<'_>) -> Result<u16> {
    input.parse::<Token![=]>()?;
    input.parse::<syn::LitInt>()?.base10_parse()
}
