//! Splits the text of a grammar into tokens.

use super::GrammarError;

/// A position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPosition {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl TextPosition {
    pub(super) fn error(self, message: impl Into<String>) -> GrammarError {
        GrammarError {
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Name(String),
    Literal(Vec<u8>),
    Class(Vec<(u8, u8)>),
    Number(u64),
    /// `..`
    To,
    /// One of `= | ; ( ) { } , * + ?`
    Sign(char),
    End,
}

impl Token {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Name(name) => format!("the name '{name}'"),
            Self::Literal(_) => "a literal".to_owned(),
            Self::Class(_) => "a class of characters".to_owned(),
            Self::Number(number) => format!("the number {number}"),
            Self::To => "'..'".to_owned(),
            Self::Sign(sign) => format!("'{sign}'"),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

pub(super) struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: TextPosition,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text.chars().peekable(),
            place: TextPosition { line: 1, column: 1 },
        }
    }

    fn next_char(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            self.place = TextPosition {
                line: self.place.line + 1,
                column: 1,
            };
        } else {
            self.place.column += 1;
        }
        Some(next)
    }

    /// The next token and its position.
    pub(super) fn next(&mut self) -> Result<(Token, TextPosition), GrammarError> {
        while let Some(&next) = self.rest.peek() {
            if next == '#' {
                while self.rest.peek().is_some_and(|next| *next != '\n') {
                    self.next_char();
                }
            } else if next.is_whitespace() {
                self.next_char();
            } else {
                break;
            }
        }
        let place = self.place;
        let Some(first) = self.next_char() else {
            return Ok((Token::End, place));
        };
        let token = match first {
            '"' => self.literal(place)?,
            '[' => self.class(place)?,
            '.' if self.rest.peek() == Some(&'.') => {
                self.next_char();
                Token::To
            }
            '=' | '|' | ';' | '(' | ')' | '{' | '}' | ',' | '*' | '+' | '?' => Token::Sign(first),
            '0'..='9' => {
                let digits = self.take(first, |next| next.is_ascii_digit());
                Token::Number(
                    digits
                        .parse()
                        .map_err(|_| place.error(format!("{digits} exceeds 64 bits")))?,
                )
            }
            _ if first.is_alphabetic() || first == '_' => Token::Name(self.take(first, |next| {
                next.is_alphanumeric() || matches!(next, '_' | '-')
            })),
            _ => return Err(place.error(format!("'{first}' has no meaning here"))),
        };
        Ok((token, place))
    }

    fn take(&mut self, first: char, belongs: impl Fn(char) -> bool) -> String {
        let mut text = String::from(first);
        while let Some(next) = self.rest.peek().copied().filter(|next| belongs(*next)) {
            text.push(next);
            self.next_char();
        }
        text
    }

    fn literal(&mut self, start: TextPosition) -> Result<Token, GrammarError> {
        let mut bytes = Vec::new();
        loop {
            match self.next_char() {
                Some('"') => return Ok(Token::Literal(bytes)),
                Some('\\') => bytes.push(self.escape()?),
                Some('\n') | None => {
                    return Err(
                        start.error("this literal is not closed: write \\n for the end of a line")
                    );
                }
                Some(other) => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }

    fn class(&mut self, start: TextPosition) -> Result<Token, GrammarError> {
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        let negated = self.rest.peek() == Some(&'^');
        if negated {
            self.next_char();
        }
        loop {
            let place = self.place;
            let first = match self.class_byte(start)? {
                Some(byte) => byte,
                None if ranges.is_empty() => {
                    return Err(start.error("this class has no characters"));
                }
                None => break,
            };
            let mut last = first;
            if self.rest.peek() == Some(&'-') {
                self.next_char();
                last = self
                    .class_byte(start)?
                    .ok_or_else(|| place.error("this range has no end; write \\- for '-'"))?;
            }
            if last < first {
                return Err(place.error("this range ends before it starts"));
            }
            ranges.push((first, last));
        }
        if negated {
            let listed = |byte: u8| {
                ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&byte))
            };
            ranges = (0..=255)
                .filter(|byte| !listed(*byte))
                .map(|byte| (byte, byte))
                .collect();
            if ranges.is_empty() {
                return Err(start.error("this class has no characters"));
            }
        }
        Ok(Token::Class(ranges))
    }

    /// The next byte of a class; `None` at its end.
    fn class_byte(&mut self, start: TextPosition) -> Result<Option<u8>, GrammarError> {
        let place = self.place;
        match self.next_char() {
            Some(']') => Ok(None),
            Some('\\') => self.escape().map(Some),
            Some('\n') | None => Err(start.error("this class is not closed: ']' is missing")),
            Some(other) if other.is_ascii() => Ok(Some(other as u8)),
            Some(other) => {
                Err(place.error(format!("'{other}' is more than a byte; use alternatives")))
            }
        }
    }

    fn escape(&mut self) -> Result<u8, GrammarError> {
        let place = self.place;
        match self.next_char() {
            Some('n') => Ok(b'\n'),
            Some('t') => Ok(b'\t'),
            Some('r') => Ok(b'\r'),
            Some('0') => Ok(0),
            Some(same @ ('\\' | '"' | '-' | ']' | '[' | '^')) => Ok(same as u8),
            Some('x') => {
                let digits: String = (0..2).filter_map(|_| self.next_char()).collect();
                u8::from_str_radix(&digits, 16)
                    .map_err(|_| place.error("\\x needs two hexadecimal digits"))
            }
            _ => Err(place.error(
                "unknown escape: expected \\n \\t \\r \\0 \\\\ \\\" \\- \\] \\[ \\^ and \\x00",
            )),
        }
    }
}
