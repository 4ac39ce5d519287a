//! Regular expressions as PostgreSQL has them, as far as clients' questions about names use them: `~` and `~*`.
//!
//! All alternatives are followed at the same time, so the time grows with the text times the expression's size, and
//! that is bounded. What would need more, references back to a group and looking ahead, is refused.

use super::text::fold;
use crate::error::SqlError;

/// Instructions of an expression.
const MAX_SIZE: usize = 5000;
/// Characters of a text times instructions.
const MAX_WORK: usize = 10_000_000;
/// Groups within groups.
const MAX_DEPTH: u32 = 100;
/// Repetitions that may be asked for, as in PostgreSQL.
const MAX_REPEAT: usize = 255;

/// An expression, made ready.
#[derive(Clone, Debug)]
pub struct Regex {
    code: Vec<Instruction>,
    /// Parts of the pattern that were looked at: a repeated part without a letter has no instruction.
    visited: usize,
    ignores_case: bool,
}

#[derive(Clone, Debug)]
enum Instruction {
    /// One character of these.
    One(CharacterSet),
    /// Both ways are followed.
    Split(usize, usize),
    Jump(usize),
    Begin,
    End,
    Found,
}

#[derive(Clone, Debug, Default)]
struct CharacterSet {
    ranges: Vec<(char, char)>,
    is_negated: bool,
}

impl CharacterSet {
    fn has(&self, character: char) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != self.is_negated
    }
}

enum Node {
    One(CharacterSet),
    Begin,
    End,
    All(Vec<Node>),
    Either(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
}

fn invalid(why: &str) -> SqlError {
    SqlError::plain("2201B", format!("invalid regular expression: {why}"))
}

fn too_complex() -> SqlError {
    SqlError::new("54001", "regular expression is too complex", "Use a shorter one, or LIKE.")
}

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} in a regular expression is not supported"),
        "Use simpler ones, or LIKE.",
    )
}

impl Regex {
    /// Makes an expression ready.
    ///
    /// # Errors
    /// 2201B if it is none, 0A000 for what is not supported, 54001 if it is too large.
    pub fn new(text: &str, ignores_case: bool) -> Result<Self, SqlError> {
        let characters: Vec<char> = text.chars().map(|c| if ignores_case { fold(c) } else { c }).collect();
        let mut parser = Parser { characters, at: 0, depth: 0 };
        let node = parser.either()?;
        if parser.at < parser.characters.len() {
            return Err(invalid("parentheses () not balanced"));
        }
        let mut regex = Regex { code: Vec::new(), visited: 0, ignores_case };
        regex.put(&node)?;
        regex.code.push(Instruction::Found);
        Ok(regex)
    }

    fn push(&mut self, step: Instruction) -> Result<usize, SqlError> {
        if self.code.len() >= MAX_SIZE {
            return Err(too_complex());
        }
        self.code.push(step);
        Ok(self.code.len() - 1)
    }

    fn put(&mut self, node: &Node) -> Result<(), SqlError> {
        self.visited += 1;
        if self.visited > MAX_SIZE {
            return Err(too_complex());
        }
        match node {
            Node::One(set) => self.push(Instruction::One(set.clone())).map(drop),
            Node::Begin => self.push(Instruction::Begin).map(drop),
            Node::End => self.push(Instruction::End).map(drop),
            Node::All(nodes) => nodes.iter().try_for_each(|node| self.put(node)),
            Node::Either(nodes) => self.put_either(nodes),
            Node::Repeat(node, least, most) => {
                for _ in 0..*least {
                    self.put(node)?;
                }
                match most {
                    None => {
                        let split = self.push(Instruction::Jump(0))?;
                        self.put(node)?;
                        self.push(Instruction::Jump(split))?;
                        self.code[split] = Instruction::Split(split + 1, self.code.len());
                    }
                    Some(most) => {
                        for _ in *least..*most {
                            let split = self.push(Instruction::Jump(0))?;
                            self.put(node)?;
                            self.code[split] = Instruction::Split(split + 1, self.code.len());
                        }
                    }
                }
                Ok(())
            }
        }
    }

    fn put_either(&mut self, nodes: &[Node]) -> Result<(), SqlError> {
        let mut ends = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            if at + 1 == nodes.len() {
                self.put(node)?;
                continue;
            }
            let split = self.push(Instruction::Jump(0))?;
            self.put(node)?;
            ends.push(self.push(Instruction::Jump(0))?);
            self.code[split] = Instruction::Split(split + 1, self.code.len());
        }
        for end in ends {
            self.code[end] = Instruction::Jump(self.code.len());
        }
        Ok(())
    }

    /// Whether a part of the text is as the expression says.
    ///
    /// # Errors
    /// 54001 if that would take too long.
    pub fn is_in(&self, text: &str) -> Result<bool, SqlError> {
        if (text.len() + 1).saturating_mul(self.code.len()) > MAX_WORK {
            return Err(too_complex());
        }
        let mut reached = Reached::new(self.code.len());
        let mut next = Reached::new(self.code.len());
        let mut characters = text.chars();
        let mut is_first = true;
        loop {
            let character = characters.next();
            self.follow(&mut reached, 0, is_first, character.is_none());
            if reached.found {
                return Ok(true);
            }
            let Some(character) = character else { return Ok(false) };
            let character = if self.ignores_case { fold(character) } else { character };
            let is_last = characters.as_str().is_empty();
            next.clear();
            for at in &reached.list {
                if let Instruction::One(set) = &self.code[*at]
                    && set.has(character)
                {
                    self.follow(&mut next, at + 1, false, is_last);
                }
            }
            std::mem::swap(&mut reached, &mut next);
            is_first = false;
        }
    }

    /// Adds all steps that are reached from one without a character.
    fn follow(&self, reached: &mut Reached, from: usize, is_first: bool, is_last: bool) {
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            if std::mem::replace(&mut reached.is_in[at], true) {
                continue;
            }
            match &self.code[at] {
                Instruction::One(_) => reached.list.push(at),
                Instruction::Split(one, other) => waiting.extend([*one, *other]),
                Instruction::Jump(to) => waiting.push(*to),
                Instruction::Begin if is_first => waiting.push(at + 1),
                Instruction::End if is_last => waiting.push(at + 1),
                Instruction::Begin | Instruction::End => {}
                Instruction::Found => reached.found = true,
            }
        }
    }
}

/// Steps that are reached at a place of the text.
struct Reached {
    list: Vec<usize>,
    is_in: Vec<bool>,
    found: bool,
}

impl Reached {
    fn new(size: usize) -> Self {
        Reached { list: Vec::new(), is_in: vec![false; size], found: false }
    }

    fn clear(&mut self) {
        self.list.clear();
        self.is_in.fill(false);
        self.found = false;
    }
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    depth: u32,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += 1;
        Some(character)
    }

    fn take(&mut self, character: char) -> bool {
        let found = self.peek() == Some(character);
        self.at += usize::from(found);
        found
    }

    fn either(&mut self) -> Result<Node, SqlError> {
        let mut nodes = vec![self.all()?];
        while self.take('|') {
            nodes.push(self.all()?);
        }
        Ok(Node::Either(nodes))
    }

    fn all(&mut self) -> Result<Node, SqlError> {
        let mut nodes = Vec::new();
        while self.peek().is_some_and(|character| !matches!(character, '|' | ')')) {
            let mut node = self.one()?;
            if let Some((least, most)) = self.repetition()? {
                // Which of the ways is taken first makes no difference here.
                self.take('?');
                node = Node::Repeat(Box::new(node), least, most);
            }
            nodes.push(node);
        }
        Ok(Node::All(nodes))
    }

    fn repetition(&mut self) -> Result<Option<(usize, Option<usize>)>, SqlError> {
        let found = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.at += 1;
                return self.bounds().map(Some);
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(found))
    }

    fn bounds(&mut self) -> Result<(usize, Option<usize>), SqlError> {
        let error = || invalid("invalid repetition count(s)");
        let least = self.number().ok_or_else(error)?;
        let most = match self.take(',') {
            false => Some(least),
            true => self.number(),
        };
        if !self.take('}') || least > MAX_REPEAT || most.is_some_and(|most| most < least || most > MAX_REPEAT)
        {
            return Err(error());
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Option<usize> {
        let from = self.at;
        while self.peek().is_some_and(|character| character.is_ascii_digit()) {
            self.at += 1;
        }
        self.characters[from..self.at].iter().collect::<String>().parse().ok()
    }

    fn one(&mut self) -> Result<Node, SqlError> {
        Ok(match self.next() {
            Some('^') => Node::Begin,
            Some('$') => Node::End,
            Some('.') => Node::One(CharacterSet { ranges: Vec::new(), is_negated: true }),
            Some('[') => Node::One(self.set()?),
            Some('(') => self.group()?,
            Some('\\') => self.escape()?,
            Some('*' | '+' | '?' | '{') => return Err(invalid("quantifier operand invalid")),
            Some(other) => Node::One(CharacterSet { ranges: vec![(other, other)], is_negated: false }),
            None => return Err(invalid("unexpected end")),
        })
    }

    fn group(&mut self) -> Result<Node, SqlError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_complex());
        }
        if self.take('?') && !self.take(':') {
            return Err(unsupported("looking ahead"));
        }
        let node = self.either()?;
        if !self.take(')') {
            return Err(invalid("parentheses () not balanced"));
        }
        self.depth -= 1;
        Ok(node)
    }

    fn escape(&mut self) -> Result<Node, SqlError> {
        let character = self.next().ok_or_else(|| invalid("invalid escape \\ sequence"))?;
        if let Some(set) = class_of(character) {
            return Ok(Node::One(set));
        }
        let literal = match character {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            other if !other.is_ascii_alphanumeric() => other,
            other => return Err(unsupported(&format!("\\{other}"))),
        };
        Ok(Node::One(CharacterSet { ranges: vec![(literal, literal)], is_negated: false }))
    }

    /// What stands in brackets.
    fn set(&mut self) -> Result<CharacterSet, SqlError> {
        let error = || invalid("brackets [] not balanced");
        let mut set = CharacterSet { ranges: Vec::new(), is_negated: self.take('^') };
        let mut is_first = true;
        loop {
            let character = self.next().ok_or_else(error)?;
            let first = match character {
                ']' if !is_first => return Ok(set),
                '[' if self.take(':') => {
                    let from = self.at;
                    while self.next().ok_or_else(error)? != ':' {}
                    let name: String = self.characters[from..self.at - 1].iter().collect();
                    if !self.take(']') {
                        return Err(error());
                    }
                    set.ranges.extend(named(&name).ok_or_else(|| invalid("invalid character class"))?);
                    is_first = false;
                    continue;
                }
                '[' if matches!(self.peek(), Some('.' | '=')) => {
                    return Err(unsupported("a collating element"));
                }
                '\\' => {
                    let escaped = self.next().ok_or_else(error)?;
                    match class_of(escaped) {
                        Some(class) if !class.is_negated => {
                            set.ranges.extend(class.ranges);
                            is_first = false;
                            continue;
                        }
                        Some(_) => return Err(unsupported("a negated class in brackets")),
                        None => escaped,
                    }
                }
                other => other,
            };
            is_first = false;
            let is_range =
                self.peek() == Some('-') && self.characters.get(self.at + 1).is_some_and(|c| *c != ']');
            let last = if is_range {
                self.at += 1;
                self.next().ok_or_else(error)?
            } else {
                first
            };
            if last < first {
                return Err(invalid("invalid character range"));
            }
            set.ranges.push((first, last));
        }
    }
}

fn class_of(character: char) -> Option<CharacterSet> {
    let name = match character.to_ascii_lowercase() {
        'd' => "digit",
        's' => "space",
        'w' => "word",
        _ => return None,
    };
    Some(CharacterSet { ranges: named(name)?, is_negated: character.is_ascii_uppercase() })
}

/// Of ASCII: of other letters PostgreSQL asks the host's locale.
fn named(name: &str) -> Option<Vec<(char, char)>> {
    let ranges: &[(char, char)] = match name {
        "digit" => &[('0', '9')],
        "alpha" => &[('a', 'z'), ('A', 'Z')],
        "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
        "word" => &[('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')],
        "upper" => &[('A', 'Z')],
        "lower" => &[('a', 'z')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
        _ => return None,
    };
    Some(ranges.to_vec())
}
