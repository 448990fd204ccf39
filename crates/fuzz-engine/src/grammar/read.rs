//! Parses the text of a grammar. Errors have a line and a column.

use std::collections::HashMap;
use std::str::FromStr;

use thiserror::Error;

use super::scan::{Scanner, TextPosition, Token};
use super::{Grammar, Node, NodeNumber, Rule};

/// An error in a grammar.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}, column {column}: {message}")]
pub struct GrammarError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// The depth of a node without an end.
const ENDLESS: u32 = u32::MAX;

/// The maximum nesting of parentheses. More would need more stack.
const DEEPEST: usize = 100;

impl FromStr for Grammar {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut scanner = Scanner::new(text);
        let (token, place) = scanner.next()?;
        let mut reader = Reader {
            scanner,
            token,
            place,
            nodes: Vec::new(),
            names: HashMap::new(),
            bodies: Vec::new(),
            depth: 0,
        };
        while reader.token != Token::End {
            reader.rule()?;
        }
        reader.finish()
    }
}

struct Name {
    text: String,
    mentioned: TextPosition,
    body: Option<NodeNumber>,
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    token: Token,
    place: TextPosition,
    nodes: Vec<Node>,
    names: HashMap<String, usize>,
    /// The nodes of rules, by their numbers.
    bodies: Vec<Name>,
    depth: usize,
}

impl Reader<'_> {
    /// Returns the current token, and advances to the next one.
    fn take(&mut self) -> Result<Token, GrammarError> {
        let (token, place) = self.scanner.next()?;
        self.place = place;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn is(&self, sign: char) -> bool {
        self.token == Token::Sign(sign)
    }

    fn expect(&mut self, sign: char, why: &str) -> Result<(), GrammarError> {
        if !self.is(sign) {
            return Err(self.place.error(format!(
                "expected '{sign}' {why}, found {}",
                self.token.describe()
            )));
        }
        self.take().map(drop)
    }

    fn add(&mut self, node: Node) -> NodeNumber {
        self.nodes.push(node);
        NodeNumber(self.nodes.len() as u32 - 1)
    }

    fn number_of(&mut self, name: String, place: TextPosition) -> usize {
        *self.names.entry(name).or_insert_with_key(|name| {
            self.bodies.push(Name {
                text: name.clone(),
                mentioned: place,
                body: None,
            });
            self.bodies.len() - 1
        })
    }

    fn rule(&mut self) -> Result<(), GrammarError> {
        let place = self.place;
        let Token::Name(name) = self.take()? else {
            return Err(place.error("expected the name of a rule: name = ... ;"));
        };
        let number = self.number_of(name.clone(), place);
        if self.bodies[number].body.is_some() {
            return Err(place.error(format!("duplicate rule '{name}'; use | for alternatives")));
        }
        self.expect('=', "after the name of a rule")?;
        let body = self.choice()?;
        self.expect(';', "at the end of a rule")?;
        self.bodies[number].body = Some(body);
        self.bodies[number].mentioned = place;
        Ok(())
    }

    fn choice(&mut self) -> Result<NodeNumber, GrammarError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self
                .place
                .error("parentheses are nested too deeply; move a part to its own rule"));
        }
        let mut alternatives = vec![self.sequence()?];
        while self.is('|') {
            self.take()?;
            alternatives.push(self.sequence()?);
        }
        self.depth -= 1;
        match alternatives[..] {
            [only] => Ok(only),
            _ => Ok(self.add(Node::Choice(alternatives))),
        }
    }

    fn sequence(&mut self) -> Result<NodeNumber, GrammarError> {
        let mut parts = Vec::new();
        while !matches!(
            self.token,
            Token::End | Token::Sign('|' | ';' | ')' | '}' | '=')
        ) {
            parts.push(self.part()?);
        }
        match parts[..] {
            [only] => Ok(only),
            _ => Ok(self.add(Node::Sequence(parts))),
        }
    }

    /// An item with its repetition.
    fn part(&mut self) -> Result<NodeNumber, GrammarError> {
        let item = self.item()?;
        let (min, max) = match self.token {
            Token::Sign('?') => (0, Some(1)),
            Token::Sign('*') => (0, None),
            Token::Sign('+') => (1, None),
            _ => return Ok(item),
        };
        self.take()?;
        Ok(self.add(Node::Repeat { item, min, max }))
    }

    fn item(&mut self) -> Result<NodeNumber, GrammarError> {
        let place = self.place;
        match self.take()? {
            Token::Name(name) => {
                let rule = self.number_of(name, place);
                Ok(self.add(Node::Rule(rule)))
            }
            Token::Literal(bytes) => Ok(self.add(Node::Literal(bytes))),
            Token::Class(ranges) => Ok(self.add(Node::Class(ranges))),
            Token::Number(first) => {
                if self.token == Token::Sign('*') {
                    self.take()?;
                    let item = self.item()?;
                    let count =
                        u32::try_from(first).map_err(|_| place.error("the count is too large"))?;
                    return Ok(self.add(Node::Repeat {
                        item,
                        min: count,
                        max: Some(count),
                    }));
                }
                if self.token != Token::To {
                    return Err(place.error(
                        "expected a range (0..9) or a count (3 * x) after a number; quote literals",
                    ));
                }
                self.take()?;
                let last_place = self.place;
                let Token::Number(last) = self.take()? else {
                    return Err(last_place.error("expected a number at the end of the range: 0..9"));
                };
                if last < first {
                    return Err(place.error(format!("the range {first}..{last} is empty")));
                }
                if self.token == Token::Sign('*') && u32::try_from(last).is_ok() {
                    self.take()?;
                    let item = self.item()?;
                    return Ok(self.add(Node::Repeat {
                        item,
                        min: first as u32,
                        max: Some(last as u32),
                    }));
                }
                Ok(self.add(Node::Number(first, last)))
            }
            Token::Sign('(') => {
                let inner = self.choice()?;
                self.expect(')', "to close the parenthesis")?;
                Ok(inner)
            }
            Token::Sign('{') => {
                let item = self.choice()?;
                self.expect('}', "to close the repetition")?;
                Ok(self.add(Node::Repeat {
                    item,
                    min: 0,
                    max: None,
                }))
            }
            other => Err(place.error(format!(
                "expected a literal, class, range, name or group, found {}",
                other.describe()
            ))),
        }
    }

    fn finish(self) -> Result<Grammar, GrammarError> {
        let mut rules = Vec::with_capacity(self.bodies.len());
        for name in &self.bodies {
            let body = name.body.ok_or_else(|| {
                let names = self
                    .bodies
                    .iter()
                    .filter(|name| name.body.is_some())
                    .map(|name| name.text.as_str());
                let known = names.collect::<Vec<_>>().join(", ");
                name.mentioned.error(format!(
                    "unknown rule '{}'; expected one of: {known}",
                    name.text
                ))
            })?;
            rules.push(Rule {
                name: name.text.clone(),
                body,
            });
        }
        if rules.is_empty() {
            return Err(self
                .place
                .error("expected at least one rule: start = ... ;"));
        }
        let depths = depths(&self.nodes, &rules);
        if let Some(rule) = endless(&self.nodes, &rules, &depths) {
            let Name {
                text, mentioned, ..
            } = &self.bodies[rule];
            return Err(mentioned.error(format!(
                "'{text}' never ends: each alternative needs itself"
            )));
        }
        let start = self.names.get("start").copied().unwrap_or(0);
        Ok(Grammar {
            nodes: self.nodes,
            depths,
            rules,
            start,
        })
    }
}

/// A rule that never ends.
fn endless(nodes: &[Node], rules: &[Rule], depths: &[u32]) -> Option<usize> {
    let is_endless = |node: NodeNumber| depths[node.0 as usize] == ENDLESS;
    let mut rule = rules.iter().position(|rule| is_endless(rule.body))?;
    // Other rules only use such a rule: following endless parts leads to it.
    let mut visited = vec![false; rules.len()];
    while !std::mem::replace(&mut visited[rule], true) {
        let mut node = rules[rule].body;
        rule = loop {
            node = match &nodes[node.0 as usize] {
                Node::Rule(rule) => break *rule,
                Node::Sequence(parts) | Node::Choice(parts) => {
                    *parts.iter().find(|part| is_endless(**part))?
                }
                Node::Repeat { item, .. } => *item,
                Node::Literal(_) | Node::Class(_) | Node::Number(..) => return None,
            };
        };
    }
    Some(rule)
}

/// The least depth of each node, as a fixed point.
fn depths(nodes: &[Node], rules: &[Rule]) -> Vec<u32> {
    let mut depths = vec![ENDLESS; nodes.len()];
    loop {
        let mut changed = false;
        for at in 0..nodes.len() {
            let of = |number: &NodeNumber| depths[number.0 as usize];
            let depth = match &nodes[at] {
                Node::Literal(_)
                | Node::Class(_)
                | Node::Number(..)
                | Node::Repeat { min: 0, .. } => 0,
                Node::Rule(rule) => of(&rules[*rule].body).saturating_add(1),
                Node::Sequence(parts) => parts.iter().map(of).max().unwrap_or(0),
                Node::Choice(alternatives) => alternatives.iter().map(of).min().unwrap_or(0),
                Node::Repeat { item, .. } => of(item),
            };
            if depth < depths[at] {
                depths[at] = depth;
                changed = true;
            }
        }
        if !changed {
            return depths;
        }
    }
}
