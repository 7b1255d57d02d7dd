//! Generates the documentation of the configuration from the types that read it.

use std::{collections::BTreeSet, fmt::Write as _};

use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::Config;

/// All settings as Markdown, one table per section.
pub(crate) fn reference() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    let definitions = object(schema.get("$defs")).cloned().unwrap_or_default();
    let mut writer =
        Writer { definitions: &definitions, text: String::new(), done: BTreeSet::new(), next: Vec::new() };
    writer.section("The file", &schema);
    while let Some(name) = writer.next.pop() {
        if writer.done.insert(name.clone())
            && let Some(section) =
                definitions.get(&name).and_then(|value| Schema::try_from(value.clone()).ok())
        {
            writer.section(&format!("`{name}`"), &section);
        }
    }
    writer.text
}

struct Writer<'a> {
    definitions: &'a Map<String, Value>,
    text: String,
    done: BTreeSet<String>,
    /// Sections that are not written yet, the next one last.
    next: Vec<String>,
}

impl Writer<'_> {
    fn section(&mut self, title: &str, schema: &Schema) {
        let value = schema.as_value();
        let about = text(value.get("description"));
        _ = writeln!(self.text, "## {title}\n\n{about}\n");
        let Some(properties) = object(value.get("properties")) else { return };
        let required: BTreeSet<&str> = value
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        self.text.push_str("| setting | value | |\n| --- | --- | --- |\n");
        let mut found = Vec::new();
        for (name, property) in properties {
            let kind = self.kind(property, &mut found);
            let mut about = text(property.get("description"));
            if required.contains(name.as_str()) {
                about = format!("**Required.** {about}");
            }
            _ = writeln!(
                self.text,
                "| `{name}` | {kind} | {} |",
                about.replace('\n', " ").replace('|', "\\|")
            );
        }
        self.text.push('\n');
        self.next.extend(found.into_iter().rev());
    }

    /// The kind of a value in words. Notes sections that it refers to.
    fn kind(&self, value: &Value, found: &mut Vec<String>) -> String {
        if let Some(name) = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
        {
            return self.named(name, found);
        }
        if let Some(choices) = value.get("anyOf").or_else(|| value.get("oneOf")).and_then(Value::as_array) {
            let kinds: Vec<_> = choices
                .iter()
                .filter(|choice| choice.get("type").and_then(Value::as_str) != Some("null"))
                .map(|choice| self.kind(choice, found))
                .collect();
            return kinds.join(", ");
        }
        // `writeOnly` is JSON Schema's mark for a value that is never shown.
        if value.get("writeOnly") == Some(&Value::Bool(true)) {
            return if value.get("format").is_some() { "URL, its secrets hidden" } else { "secret" }
                .to_owned();
        }
        if let Some(constant) = value.get("const") {
            return format!("`{}`", constant.as_str().unwrap_or_default());
        }
        if let Some(items) = value.get("items") {
            return format!("list of {}", self.kind(items, found));
        }
        if let Some(values) = value.get("additionalProperties").filter(|values| values.is_object()) {
            return format!("names and {}", self.kind(values, found));
        }
        if let Some([(variant, inner)]) =
            object(value.get("properties")).map(|map| map.iter().collect::<Vec<_>>()).as_deref()
        {
            return format!("`{variant}`: {}", self.kind(inner, found));
        }
        match first_type(value) {
            "boolean" => "`true`, `false`".to_owned(),
            "integer" | "number" => "number".to_owned(),
            other => other.replace("string", "text"),
        }
    }

    fn named(&self, name: &str, found: &mut Vec<String>) -> String {
        let Some(definition) = self.definitions.get(name) else { return name.to_owned() };
        if definition.get("properties").is_some() {
            found.push(name.to_owned());
            return format!("[{name}](#{})", name.to_lowercase());
        }
        if let Some(names) = definition.get("enum").and_then(Value::as_array) {
            return names
                .iter()
                .map(|name| format!("`{}`", name.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(", ");
        }
        self.kind(definition, found)
    }
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn first_type(value: &Value) -> &str {
    match value.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("text")
        }
        _ => "text",
    }
}
