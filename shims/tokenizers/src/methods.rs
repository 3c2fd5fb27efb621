//! Methods of Python's str and list, where minijinja-contrib's differ from Python's or are missing.

use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{Error, State, Value};

use crate::python::{bad, to_str};

pub fn call_method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => string_method(text, name, args)?,
        (ValueKind::Seq | ValueKind::Iterable, _) => list_method(value, name, args)?,
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn list_method(list: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match name {
        "index" => {
            let (wanted,): (Value,) = from_args(args)?;
            let found = list.try_iter()?.position(|item| item == wanted);
            Value::from(found.ok_or_else(|| bad("the value is not in the list"))?)
        }
        "count" => {
            let (wanted,): (Value,) = from_args(args)?;
            Value::from(list.try_iter()?.filter(|item| *item == wanted).count())
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => {
            return Err(bad(format!("list.{name}() is not allowed: a template may not change values")));
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn string_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, chars, name != "rstrip", name != "lstrip"))
        }
        "split" | "rsplit" => split(text, name == "rsplit", args)?,
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let named: Option<bool> = kwargs.get("keepends")?;
            kwargs.assert_all_used()?;
            list(split_lines(text, keep.or(named).unwrap_or(false)))
        }
        "partition" | "rpartition" => partition(text, name == "rpartition", args)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "find" | "rfind" | "index" | "rindex" => find(text, name, args)?,
        "count" => {
            let (wanted,): (&str,) = from_args(args)?;
            Value::from(if wanted.is_empty() { text.chars().count() + 1 } else { text.matches(wanted).count() })
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(text.chars().map(swap_case).collect::<String>())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase())
        }
        "zfill" | "ljust" | "rjust" | "center" => pad(text, name, args)?,
        "join" => {
            let (items,): (Value,) = from_args(args)?;
            let parts: Vec<String> = items.try_iter()?.map(|item| to_str(&item)).collect::<Result<_, _>>()?;
            Value::from(parts.join(text))
        }
        _ if name.starts_with("is") => match character_test(text, name) {
            Some(answer) => {
                let () = from_args(args)?;
                Value::from(answer)
            }
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// str.isspace of one character: Unicode's blanks and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let unwanted = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left { text.trim_start_matches(unwanted) } else { text };
    if right {
        text.trim_end_matches(unwanted)
    } else {
        text
    }
}

fn list(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect()
}

fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|value| !value.is_none());
    let limit = limit.or(kwargs.get("maxsplit")?).filter(|n| *n >= 0).map_or(usize::MAX, |n| n as usize);
    kwargs.assert_all_used()?;
    let Some(separator) = separator else {
        return Ok(list(split_blanks(text, limit, from_right)));
    };
    let separator = separator.as_str().ok_or_else(|| bad("split() takes a string"))?;
    if separator.is_empty() {
        return Err(bad("split(): empty separator"));
    }
    let parts = limit.saturating_add(1);
    if !from_right {
        return Ok(list(text.splitn(parts, separator).collect()));
    }
    let mut pieces: Vec<_> = text.rsplitn(parts, separator).collect();
    pieces.reverse();
    Ok(list(pieces))
}

fn split_blanks(text: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let mut rest = strip(text, None, true, true);
    let mut parts = Vec::new();
    while !rest.is_empty() && parts.len() < limit {
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(cut) = cut else { break };
        let (head, tail) = (&rest[..cut], rest[cut..].trim_start_matches(is_space));
        parts.push(if from_right { tail } else { head });
        rest = if from_right { head.trim_end_matches(is_space) } else { tail };
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    if from_right {
        parts.reverse();
    }
    parts
}

fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_end) {
        let mark =
            if rest[end..].starts_with("\r\n") { 2 } else { rest[end..].chars().next().map_or(1, char::len_utf8) };
        lines.push(&rest[..if keep_ends { end + mark } else { end }]);
        rest = &rest[end + mark..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn partition(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(bad("partition(): empty separator"));
    }
    let cut = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    Ok(list(match cut {
        Some((head, tail)) => vec![head, separator, tail],
        None if from_right => vec!["", "", text],
        None => vec![text, "", ""],
    }))
}

/// Positions are characters, as in Python, with its optional start and end.
fn find(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (wanted, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let length = text.chars().count() as i64;
    let clamp = |position: i64| if position < 0 { (position + length).max(0) } else { position };
    let start = clamp(start.unwrap_or(0));
    let end = clamp(end.unwrap_or(length)).min(length);
    let mut found = None;
    if start <= end {
        let window: String = text.chars().skip(start as usize).take((end - start) as usize).collect();
        let byte = if name.starts_with('r') { window.rfind(wanted) } else { window.find(wanted) };
        found = byte.map(|byte| start + window[..byte].chars().count() as i64);
    }
    match found {
        None if name.ends_with("index") => Err(bad("the substring is not found")),
        found => Ok(Value::from(found.unwrap_or(-1))),
    }
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() {
        c.to_lowercase().collect()
    } else {
        c.to_uppercase().collect()
    }
}

fn pad(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<char>) = from_args(args)?;
    let missing = width.min(1_000_000).saturating_sub(text.chars().count());
    let fill = fill.unwrap_or(' ').to_string();
    Ok(Value::from(match name {
        "ljust" => format!("{text}{}", fill.repeat(missing)),
        "rjust" => format!("{}{text}", fill.repeat(missing)),
        "zfill" => {
            let digits = text.trim_start_matches(['+', '-']);
            let sign = &text[..(text.len() - digits.len()).min(1)];
            format!("{sign}{}{}", "0".repeat(missing), &text[sign.len()..])
        }
        _ => {
            // CPython puts the odd blank on the left when the width is odd.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))
        }
    }))
}

/// The str.is... family: false for the empty string, isascii() apart.
fn character_test(text: &str, name: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    let cased =
        |wanted: fn(char) -> bool, other: fn(char) -> bool| text.chars().any(wanted) && !text.chars().any(other);
    Some(match name {
        "isascii" => text.is_ascii(),
        "isspace" => all(is_space),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdigit" | "isnumeric" | "isdecimal" => all(char::is_numeric),
        "islower" => cased(char::is_lowercase, char::is_uppercase),
        "isupper" => cased(char::is_uppercase, char::is_lowercase),
        _ => return None,
    })
}
