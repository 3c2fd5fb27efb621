//! JSON as template values that print as Python prints them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};

use crate::python::to_repr;

#[derive(Debug)]
struct List(Vec<Value>);

#[derive(Debug)]
struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<String, usize>,
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(&Value::from_dyn_object(self.clone()), f)
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let position = *self.index.get(key.as_str()?)?;
        Some(self.entries[position].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(self.entries.iter().map(|entry| entry.0.clone()).collect::<Vec<_>>().into_iter()))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(&Value::from_dyn_object(self.clone()), f)
    }
}

fn print(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&to_repr(value).map_err(|_| fmt::Error)?)
}

pub fn from_json(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::from(value),
            (None, Some(value)) => Value::from(value),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(value) => Value::from(value),
        serde_json::Value::Array(items) => Value::from_object(List(items.into_iter().map(from_json).collect())),
        serde_json::Value::Object(map) => {
            let index = map.keys().enumerate().map(|(position, key)| (key.clone(), position)).collect();
            let entries = map.into_iter().map(|(key, value)| (Value::from(key), from_json(value))).collect();
            Value::from_object(Dict { entries, index })
        }
    }
}
