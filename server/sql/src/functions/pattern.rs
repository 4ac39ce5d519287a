//! `LIKE` and `ILIKE` as PostgreSQL has them: case counts, all of Unicode is folded, a backslash escapes.
//!
//! A pattern is matched in one pass with a bit for each of its characters, so the time grows with the text times the
//! pattern's length by 64, whatever both are.

use rusqlite::functions::Context;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::text::fold;
use super::{Args, PURE, raise, text_of};
use crate::error::SqlError;

/// Characters of a pattern.
const MAX_PATTERN: usize = 1000;

/// A pattern, made ready.
#[derive(Clone, Debug)]
pub struct LikePattern {
    /// How many characters it asks for.
    length: usize,
    /// For each of its characters, in their order: where it stands, a bit for each place.
    places: Vec<(char, Vec<u64>)>,
    /// Places of `_`.
    any: Vec<u64>,
    /// Places before which `%` stands, the end included.
    stars: Vec<u64>,
    ignores_case: bool,
}

impl LikePattern {
    /// Makes a pattern ready.
    ///
    /// # Errors
    /// 22025 if it ends with the escape, 54000 if it is too long.
    pub fn new(pattern: &str, escape: Option<char>, ignores_case: bool) -> Result<Self, SqlError> {
        if pattern.len() > MAX_PATTERN * 4 || pattern.chars().count() > MAX_PATTERN {
            let hint = "A pattern has at most 1000 characters.";
            return Err(SqlError::new("54000", "LIKE pattern too long", hint));
        }
        let words = pattern.len() / 64 + 1;
        let mut made = LikePattern {
            length: 0,
            places: Vec::new(),
            any: vec![0; words],
            stars: vec![0; words],
            ignores_case,
        };
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            match character {
                escaping if Some(escaping) == escape => {
                    let Some(next) = characters.next() else {
                        return Err(SqlError::plain(
                            "22025",
                            "LIKE pattern must not end with escape character",
                        ));
                    };
                    made.push(next);
                }
                '%' => set(&mut made.stars, made.length),
                '_' => {
                    set(&mut made.any, made.length);
                    made.length += 1;
                }
                other => made.push(other),
            }
        }
        let any = made.any.clone();
        for (_, places) in &mut made.places {
            places.iter_mut().zip(&any).for_each(|(place, any)| *place |= any);
        }
        Ok(made)
    }

    fn push(&mut self, character: char) {
        let character = if self.ignores_case { fold(character) } else { character };
        let words = self.any.len();
        let at = self.places.binary_search_by_key(&character, |(known, _)| *known).unwrap_or_else(|at| {
            self.places.insert(at, (character, vec![0; words]));
            at
        });
        set(&mut self.places[at].1, self.length);
        self.length += 1;
    }

    /// Whether the whole text is as the pattern says.
    pub fn matches(&self, text: &str) -> bool {
        // Bit n: what was read so far is as the first n characters of the pattern say.
        let mut reached = vec![0; self.any.len()];
        reached[0] = 1;
        for character in text.chars() {
            let character = if self.ignores_case { fold(character) } else { character };
            let found = self.places.binary_search_by_key(&character, |(known, _)| *known);
            let places = found.map_or(&self.any, |at| &self.places[at].1);
            let (mut carry, mut alive) = (0, 0);
            for ((reached, place), star) in reached.iter_mut().zip(places).zip(&self.stars) {
                let matched = *reached & place;
                *reached = matched << 1 | carry | *reached & star;
                carry = matched >> 63;
                alive |= *reached;
            }
            if alive == 0 {
                return false;
            }
        }
        reached[self.length / 64] >> (self.length % 64) & 1 == 1
    }
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

fn escape_of(args: &Args<'_>) -> Result<Option<char>, SqlError> {
    if args.count() < 3 {
        return Ok(Some('\\'));
    }
    let text = args.text(2)?;
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (first, None) => Ok(first),
        _ => {
            let hint = "Escape string must be empty or one character.";
            Err(SqlError::new("22025", "invalid escape string", hint))
        }
    }
}

fn like(context: &Context<'_>, ignores_case: bool) -> Result<Value, Error> {
    let args = Args::new(context);
    if (0..args.count()).any(|at| args.value(at) == ValueRef::Null) {
        return Ok(Value::Null);
    }
    let text = args.text(0).map_err(raise)?;
    let make = |value: ValueRef<'_>| {
        let pattern = text_of(value).map_err(raise)?;
        LikePattern::new(&pattern, escape_of(&args).map_err(raise)?, ignores_case).map_err(raise)
    };
    let matches = if args.count() == 2 {
        // A pattern that is the same in all rows is made ready once.
        context.get_or_create_aux(1, make)?.matches(&text)
    } else {
        make(args.value(1))?.matches(&text)
    };
    Ok(Value::Integer(matches.into()))
}

/// Makes the functions known: `like_pg(text, pattern[, escape])`, `ilike_pg`, and `regexp_pg(text, pattern, how)`.
pub fn register(connection: &Connection) -> Result<(), Error> {
    for arguments in [2, 3] {
        connection.create_scalar_function("like_pg", arguments, PURE, |context| like(context, false))?;
        connection.create_scalar_function("ilike_pg", arguments, PURE, |context| like(context, true))?;
    }
    for (name, ignores_case) in [("regexp_pg", false), ("iregexp_pg", true)] {
        connection.create_scalar_function(name, 2, PURE, move |context| {
            let args = Args::new(context);
            if (0..2).any(|at| args.value(at) == ValueRef::Null) {
                return Ok(Value::Null);
            }
            let regex = context.get_or_create_aux(1, |value: ValueRef<'_>| {
                super::Regex::new(&text_of(value).map_err(raise)?, ignores_case).map_err(raise)
            })?;
            let found = regex.is_in(&args.text(0).map_err(raise)?).map_err(raise)?;
            Ok(Value::Integer(found.into()))
        })?;
    }
    Ok(())
}
