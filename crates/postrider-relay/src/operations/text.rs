//! Labels of metrics that are written out by hand.

/// A label with its value, as Prometheus reads it.
pub(super) fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}
