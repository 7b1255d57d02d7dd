//! Fingerprints the files that sinks read, so that a reload notices a certificate that was renewed in place.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    path::Path,
};

use postrider_net::files;
use serde_json::Value;

use super::Sink;

/// A fingerprint of each file, by sink and in the order of the settings; `None` for a file that cannot be read.
pub(super) type Contents = BTreeMap<String, Vec<Option<u64>>>;

pub(super) fn contents(sinks: &BTreeMap<String, Sink>) -> Contents {
    let of_sink = |sink: &Sink| {
        let mut found = Vec::new();
        collect(&serde_json::json!(sink), &mut found);
        found
    };
    sinks.iter().map(|(name, sink)| (name.clone(), of_sink(sink))).collect()
}

/// Settings that name a file to read end in `_file` for every kind of sink.
fn collect(value: &Value, found: &mut Vec<Option<u64>>) {
    let Value::Object(settings) = value else { return };
    for (name, value) in settings {
        match value {
            Value::String(path) if name.ends_with("_file") => found.push(fingerprint(Path::new(path))),
            _ => collect(value, found),
        }
    }
}

fn fingerprint(path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    files::read(path, files::CERTIFICATES_BYTES_MAX).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use crate::config::load::parse;

    #[test]
    fn a_certificate_that_was_renewed_in_place_is_news_for_the_sources_that_use_it_and_for_no_other() {
        let name = format!("postrider-renewed-{}.pem", std::process::id());
        let file = std::env::temp_dir().join(name);
        for setting in ["tls: { ca_file: FILE }", "credentials_file: FILE"] {
            let setting = setting.replace("FILE", file.to_str().unwrap());
            let text = format!(
                "sources:\n  shop: {{ url: shop.db, routes: [{{ event_type: \"*\", sink: nats }}] }}\n\
                 \x20 other: {{ url: other.db, routes: [{{ event_type: \"*\", sink: out }}] }}\n\
                 sinks:\n  nats: {{ nats: {{ url: \"tls://localhost\", subject: a, {setting} }} }}\n  out: {{ stdout: {{}} }}\n"
            );
            let read = || parse(&text, HashMap::new()).unwrap();
            std::fs::write(&file, "old").unwrap();
            let old = read();
            assert!(old.is_equal_for("shop", &read()), "{setting}");
            std::fs::write(&file, "new").unwrap();
            let new = read();
            assert!(!old.is_equal_for("shop", &new), "{setting}");
            assert!(old.is_equal_for("other", &new), "{setting}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
