//! JSON, as far as an expectation needs it: whether one text is contained in another, and if not, where they differ.
//!
//! An expectation comes as text, so that the callers' own version of a JSON library is no concern of ours.

use std::{collections::BTreeMap, fmt, iter::Peekable, str::Chars};

/// Deeper than anybody nests, shallower than the stack.
const DEPTH_MAX: usize = 128;

/// One JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// As it was written: no digit is lost.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader(text.chars().peekable());
        let value = reader.value(DEPTH_MAX)?;
        match reader.next_visible() {
            None => Ok(value),
            Some(extra) => Err(format!("{extra:?} follows the end of the value")),
        }
    }

    /// Where `found` does not have what is wanted here; none if it has all of it. Objects may have more members than are
    /// wanted, lists may not have more elements.
    pub(super) fn missing_in(&self, found: &Self, place: &str) -> Option<String> {
        match (self, found) {
            (Self::Object(wanted), Self::Object(found)) => wanted.iter().find_map(|(name, wanted)| {
                let place = format!("{place}.{name}");
                match found.get(name) {
                    Some(found) => wanted.missing_in(found, &place),
                    None => Some(format!("{place} is missing")),
                }
            }),
            (Self::List(wanted), Self::List(found)) if wanted.len() == found.len() => {
                wanted.iter().zip(found).enumerate().find_map(|(number, (wanted, found))| {
                    wanted.missing_in(found, &format!("{place}[{number}]"))
                })
            }
            (Self::Number(wanted), Self::Number(found)) if same_number(wanted, found) => None,
            (wanted, found) if wanted == found => None,
            (wanted, found) => Some(format!("{place} is {found}, not {wanted}")),
        }
    }
}

/// `1.0` and `1` are the same, and whole numbers are compared digit by digit.
fn same_number(one: &str, other: &str) -> bool {
    let broken = |number: &str| number.contains(['.', 'e', 'E']);
    one == other || ((broken(one) || broken(other)) && one.parse::<f64>().ok() == other.parse::<f64>().ok())
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => f.write_str(value),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List(values) => {
                f.write_str("[")?;
                for (number, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if number > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (number, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{name:?}:{value}", if number > 0 { "," } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

struct Reader<'a>(Peekable<Chars<'a>>);

impl Reader<'_> {
    fn next_visible(&mut self) -> Option<char> {
        self.skip_spaces();
        self.0.next()
    }

    fn skip_spaces(&mut self) {
        while self.0.next_if(|c| matches!(c, ' ' | '\t' | '\r' | '\n')).is_some() {}
    }

    /// Whether this comes next; if so it is taken.
    fn take(&mut self, wanted: char) -> bool {
        self.skip_spaces();
        self.0.next_if_eq(&wanted).is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.next_visible() {
            Some(found) if found == wanted => Ok(()),
            found => Err(unexpected(found, &format!("{wanted:?}"))),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        match self.next_visible() {
            Some('{') => self.object(depth),
            Some('[') => self.list(depth),
            Some('"') => self.text().map(Json::Text),
            Some(first @ ('-' | '0'..='9')) => self.number(first),
            Some('n') => self.word("ull", Json::Null),
            Some('t') => self.word("rue", Json::Bool(true)),
            Some('f') => self.word("alse", Json::Bool(false)),
            found => Err(unexpected(found, "a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        let mut members = BTreeMap::new();
        if self.take('}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.expect('"')?;
            let name = self.text()?;
            self.expect(':')?;
            members.insert(name, self.value(depth)?);
            if !self.take(',') {
                self.expect('}')?;
                return Ok(Json::Object(members));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, String> {
        let mut values = Vec::new();
        if self.take(']') {
            return Ok(Json::List(values));
        }
        loop {
            values.push(self.value(depth)?);
            if !self.take(',') {
                self.expect(']')?;
                return Ok(Json::List(values));
            }
        }
    }

    fn word(&mut self, rest: &str, value: Json) -> Result<Json, String> {
        for wanted in rest.chars() {
            if self.0.next_if_eq(&wanted).is_none() {
                return Err(unexpected(self.0.peek().copied(), "null, true or false"));
            }
        }
        Ok(value)
    }

    fn number(&mut self, first: char) -> Result<Json, String> {
        let mut number = String::from(first);
        while let Some(next) = self.0.next_if(|c| matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-')) {
            number.push(next);
        }
        match number.parse::<f64>() {
            Ok(_) => Ok(Json::Number(number)),
            Err(_) => Err(format!("{number} is not a number")),
        }
    }

    /// The rest of a text whose first quote has been taken.
    fn text(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.0.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escaped()?),
                Some(other) => text.push(other),
                None => return Err(unexpected(None, "the end of a text")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        match self.0.next() {
            Some('b') => Ok('\u{8}'),
            Some('f') => Ok('\u{c}'),
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some(plain @ ('"' | '\\' | '/')) => Ok(plain),
            Some('u') => self.code_point(),
            found => Err(unexpected(found, "something that can be escaped")),
        }
    }

    /// `XXXX`, or the two halves `XXXX\uXXXX` of what does not fit into one.
    fn code_point(&mut self) -> Result<char, String> {
        let first = self.four_digits()?;
        let code = match first {
            0xd800..0xdc00 => {
                let marked = self.0.next() == Some('\\') && self.0.next() == Some('u');
                let second = if marked { self.four_digits()? } else { 0 };
                let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400).ok_or("half a character")?;
                0x10000 + ((first - 0xd800) << 10) + low
            }
            whole => whole,
        };
        char::from_u32(code).ok_or_else(|| "half a character".to_owned())
    }

    fn four_digits(&mut self) -> Result<u32, String> {
        (0..4).try_fold(0, |code, _| match self.0.next().and_then(|digit| digit.to_digit(16)) {
            Some(digit) => Ok(code * 16 + digit),
            None => Err("\\u without four digits".to_owned()),
        })
    }
}

fn unexpected(found: Option<char>, wanted: &str) -> String {
    match found {
        Some(found) => format!("{found:?} stands where {wanted} should"),
        None => format!("it ends where {wanted} should be"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(wanted: &str, found: &str) -> Option<String> {
        Json::parse(wanted).unwrap().missing_in(&Json::parse(found).unwrap(), "$")
    }

    #[test]
    fn an_object_may_have_more_than_is_wanted_at_every_level() {
        assert_eq!(
            missing(r#"{"a":{"b":[1,{"c":null}]}}"#, r#"{"a":{"b":[1,{"c":null,"d":2}],"e":3}}"#),
            None
        );
        assert_eq!(missing("{}", r#"{"a":1}"#), None);
    }

    #[test]
    fn what_is_missing_or_different_is_named_with_its_place() {
        assert_eq!(missing(r#"{"a":{"b":1}}"#, r#"{"a":{}}"#).unwrap(), "$.a.b is missing");
        assert_eq!(missing(r#"{"a":[1,2]}"#, r#"{"a":[1,3]}"#).unwrap(), "$.a[1] is 3, not 2");
        assert_eq!(missing("[1]", "[1,2]").unwrap(), "$ is [1,2], not [1]");
        assert_eq!(missing(r#""x""#, r#"{"x":true}"#).unwrap(), r#"$ is {"x":true}, not "x""#);
    }

    #[test]
    fn numbers_are_compared_by_value_and_lose_no_digit() {
        assert_eq!(missing("1.0", "1"), None);
        assert_eq!(missing("1e2", "100"), None);
        assert!(missing("9007199254740993", "9007199254740992").is_some());
    }

    #[test]
    fn texts_are_read_with_their_escapes() {
        let text = |json: &str| Json::parse(json);
        assert_eq!(text(r#""\"\\\/\b\n\u00e9""#), Ok(Json::Text("\"\\/\u{8}\né".to_owned())));
        assert_eq!(text(r#""\ud83e\udd80""#), Ok(Json::Text("🦀".to_owned())));
        assert!(text(r#""\ud83e""#).is_err());
        assert!(text(r#""\udd80""#).is_err());
    }

    #[test]
    fn what_is_no_json_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "it ends where a value should be"),
            ("{'a':1}", "'\\'' stands where '\"' should"),
            ("[1,]", "']' stands where a value should"),
            ("{} {}", "'{' follows the end of the value"),
            ("nul", "it ends where null, true or false should be"),
            ("1-1", "1-1 is not a number"),
            (r#"{"a" 1}"#, "'1' stands where ':' should"),
            ("\"open", "it ends where the end of a text should be"),
        ] {
            assert_eq!(Json::parse(text).unwrap_err(), reason, "{text}");
        }
        assert_eq!(Json::parse(&"[".repeat(100_000)).unwrap_err(), "it is nested too deeply");
    }
}
