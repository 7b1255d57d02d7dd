//! Renders labels of metrics that the recorder does not keep.

/// A label in Prometheus's text format.
pub(super) fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}
