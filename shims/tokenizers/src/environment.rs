//! The Jinja environment of transformers' apply_chat_template.

use std::ffi::CString;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::methods::{call_method, strip};
use crate::python::{bad, to_str, tojson};
use crate::values::from_json;

/// Instructions a template may run: thousands of times what a long conversation needs.
const FUEL: u64 = 20_000_000;

pub struct ChatTemplate(Environment<'static>);

impl ChatTemplate {
    pub fn new(source: &str) -> Result<Self, String> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_fuel(Some(FUEL));
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_formatter(|out, _, value| out.write_str(&to_str(value)?).map_err(Error::from));
        env.set_unknown_method_callback(call_method);
        add_filters(&mut env);
        add_tests(&mut env);
        add_functions(&mut env);
        // Jinja reads every line end as "\n".
        let source = neutralise_generation(&source.replace("\r\n", "\n").replace('\r', "\n"));
        env.add_template_owned("chat", source).map_err(describe)?;
        Ok(Self(env))
    }

    pub fn render(&self, variables: &[u8]) -> Result<String, String> {
        let json: serde_json::Value =
            serde_json::from_slice(variables).map_err(|e| format!("the messages are not valid JSON: {e}"))?;
        let template = self.0.get_template("chat").map_err(describe)?;
        template.render(from_json(json)).map_err(describe)
    }
}

/// "line 3: what went wrong", of the innermost cause.
fn describe(error: Error) -> String {
    let mut cause = &error;
    while let Some(inner) = std::error::Error::source(cause).and_then(|e| e.downcast_ref::<Error>()) {
        cause = inner;
    }
    let place = cause.line().or(error.line()).map_or(String::new(), |line| format!("line {line}: "));
    let detail = cause.detail().map_or(String::new(), str::to_string);
    match cause.kind() {
        ErrorKind::InvalidOperation if !detail.is_empty() => place + &detail,
        kind if detail.is_empty() => format!("{place}{kind}"),
        kind => format!("{place}{kind}: {detail}"),
    }
}

/// transformers' {% generation %} marks assistant text and prints nothing. {% with %} does just that, and leaves blanks
/// and line numbers as they were.
fn neutralise_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(position) = rest.find("{%") {
        let (before, tag) = rest.split_at(position + 2);
        out.push_str(before);
        rest = tag;
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let lead = tag.len() - inner.len();
        for (name, instead) in [("generation", "with"), ("endgeneration", "endwith")] {
            let Some(after) = inner.strip_prefix(name) else { continue };
            if after.trim_start().trim_start_matches(['-', '+']).starts_with("%}") {
                out.push_str(&tag[..lead]);
                out.push_str(instead);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn add_filters(env: &mut Environment) {
    env.add_filter("tojson", |value: &Value, positional: Rest<Value>, kwargs: Kwargs| {
        tojson(value, positional, kwargs)
    });
    env.add_filter("string", |value: &Value| to_str(value));
    env.add_filter("trim", |value: &Value, chars: Option<String>| -> Result<String, Error> {
        Ok(strip(&to_str(value)?, chars.as_deref(), true, true).to_string())
    });
    env.add_filter("join", join);
    env.add_filter("int", |value: &Value, default: Option<i64>| to_int(value).unwrap_or(default.unwrap_or(0)));
    env.add_filter("float", |value: &Value, default: Option<f64>| to_float(value).unwrap_or(default.unwrap_or(0.0)));
}

fn join(value: &Value, separator: Option<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let named: Option<Value> = kwargs.get("d")?;
    let attribute: Option<Value> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let separator = separator.or(named).map_or(Ok(String::new()), |text| to_str(&text))?;
    let mut parts = Vec::new();
    for item in value.try_iter()? {
        let part = match &attribute {
            Some(name) => item.get_item(name)?,
            None => item,
        };
        parts.push(to_str(&part)?);
    }
    Ok(parts.join(&separator))
}

fn to_int(value: &Value) -> Option<i64> {
    match value.kind() {
        ValueKind::Bool => Some(value.is_true().into()),
        ValueKind::Number => value.as_i64().or_else(|| Some(f64::try_from(value.clone()).ok()?.trunc() as i64)),
        ValueKind::String => {
            let text = value.as_str()?.trim();
            text.parse().ok().or_else(|| Some(text.parse::<f64>().ok()?.trunc() as i64))
        }
        _ => None,
    }
}

fn to_float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => value.as_str()?.trim().parse().ok(),
        _ => None,
    }
}

/// Python counts strings and mappings among the sequences, and nothing else but them and lists can be walked.
fn add_tests(env: &mut Environment) {
    use ValueKind::{Bool, Iterable, Map, Number, Seq, String, Undefined};
    env.add_test("sequence", |value: &Value| matches!(value.kind(), Seq | Iterable | String | Map | Undefined));
    env.add_test("iterable", |value: &Value| matches!(value.kind(), Seq | Iterable | String | Map | Undefined));
    env.add_test("number", |value: &Value| matches!(value.kind(), Number | Bool));
    env.add_test("callable", |value: &Value| matches!(value.kind(), ValueKind::Plain | Undefined));
}

fn add_functions(env: &mut Environment) {
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> { Err(bad(to_str(message)?)) });
    env.add_function("strftime_now", |format: String| local_time(&format).ok_or_else(|| bad("bad time format")));
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
}

/// datetime.now().strftime(format)
fn local_time(format: &str) -> Option<String> {
    if format.is_empty() {
        return Some(String::new());
    }
    let format = CString::new(format).ok()?;
    let mut buffer = vec![0u8; 256 + 16 * format.as_bytes().len()];
    // SAFETY: the buffer's size is passed along, and localtime_r fills the struct before strftime reads it.
    let written = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut parts);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &parts)
    };
    buffer.truncate(written);
    String::from_utf8(buffer).ok()
}
