//! Secrets and URLs with secrets: read and used, but never printed.

use std::{borrow::Cow, fmt, path::Path};

use postrider_net::files;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_saphyr::Spanned;

use super::located::line_and_column;

/// Printed in place of a secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// The prefix of a path to a file that contains the secret.
const IN_FILE: &str = "file:";

/// A password, a token or a signing key: the text itself, preferably as `${VARIABLE}`, or `file:/path`.
#[derive(Clone)]
pub(crate) struct Secret(SecretString);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Secret {
    // Only detects changes of a configuration; no attacker can measure its timing.
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Secret {
    /// The secret itself, or the contents of the file that it names.
    fn of(text: String) -> Result<Self, String> {
        let text = match text.strip_prefix(IN_FILE) {
            // Editors and `echo` end a file with a line break that is not part of the secret.
            Some(file) => files::read_text(Path::new(file), files::SECRET_BYTES_MAX)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| format!("cannot read the secret file {file}: {error}"))?,
            None => text,
        };
        if text.is_empty() {
            return Err(
                "a secret is empty: is its variable set? Remove the setting if there is no secret".to_owned()
            );
        }
        Ok(Self(text.into()))
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true, "description": "preferably as `${VARIABLE}`, or `file:/path` to read it from that file; never printed" })
    }
    fn inline_schema() -> bool {
        true
    }
}

/// A URL that may contain a password. Printed without user and password, without everything after a `?`, and for HTTP without the path,
/// because some receivers use it as a secret.
#[derive(Clone)]
pub(crate) struct SecretUrl {
    secret: Secret,
    /// Line and column, if known.
    at: Option<(u64, u64)>,
}

impl PartialEq for SecretUrl {
    // Positions are not compared.
    fn eq(&self, other: &Self) -> bool {
        self.secret == other.secret
    }
}

impl SecretUrl {
    pub(crate) fn expose(&self) -> &str {
        self.secret.expose()
    }

    /// Line and column, if known.
    pub(crate) fn at(&self) -> Option<(u64, u64)> {
        self.at
    }

    /// The part of the URL that may be shown.
    pub(crate) fn shown(&self) -> String {
        let url = self.expose();
        let Some((scheme, rest)) = url.split_once("://") else {
            // A path, or `sqlite:`. Only a query, or a text that is not a URL at all, can contain a password.
            return if url.contains('@') { HIDDEN.to_owned() } else { before_query(url).to_owned() };
        };
        // The last @ before the path: a password may contain one itself.
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        // A URL with a slash in its password is invalid, and the rest of the password would be shown.
        if path.contains('@') {
            return format!("{scheme}://{HIDDEN}");
        }
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let by_http = ["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
        format!("{scheme}://{host}{}", if by_http { "" } else { before_query(path) })
    }
}

fn before_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<String>::deserialize(deserializer)?;
        let secret = Secret::of(value).map_err(de::Error::custom)?;
        Ok(Self { secret, at: line_and_column(referenced) })
    }
}

impl JsonSchema for SecretUrl {
    fn schema_name() -> Cow<'static, str> {
        "Url".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Secret::json_schema(generator);
        schema.insert("format".to_owned(), "uri".into());
        schema.insert(
            "description".to_owned(),
            "a URL, preferably as `${VARIABLE}`, or `file:/path` to read it from that file; printed without user, password and parameters, and for HTTP without the path".into(),
        );
        schema
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> SecretUrl {
        SecretUrl { secret: Secret(text.into()), at: None }
    }

    #[test]
    fn of_a_url_only_what_is_no_secret_is_shown() {
        for (given, shown) in [
            (
                "postgres://shop:canary@db.example:5432/shop?sslmode=require&password=canary",
                "postgres://db.example:5432/shop",
            ),
            ("amqp://shop:can@ary@mq.example/vhost", "amqp://mq.example/vhost"),
            ("redis://:canary@cache:6379/0", "redis://cache:6379/0"),
            ("postgres://shop:canary/with@slash@db/shop", "postgres://(hidden)"),
            ("shop.db", "shop.db"),
            ("sqlite:shop.db?mode=rwc", "sqlite:shop.db"),
            ("shop:canary@db", "(hidden)"),
            ("https://canary@hooks.example", "https://hooks.example"),
            ("https://hooks.example:8443/services/T00/canary", "https://hooks.example:8443"),
            ("HTTP://u:canary@hooks.example/canary?canary#canary", "HTTP://hooks.example"),
        ] {
            assert_eq!(url(given).shown(), shown);
            assert_eq!(format!("{:?}", url(given)), shown);
        }
    }

    #[test]
    fn a_secret_in_a_file_ends_before_its_line_break() {
        let file = std::env::temp_dir().join(format!("postrider-secret-{}", std::process::id()));
        std::fs::write(&file, "can ary\r\n").unwrap();
        let secret = Secret::of(format!("file:{}", file.display()));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(secret.unwrap().expose(), "can ary");
        let missing = Secret::of(format!("file:{}", file.display())).unwrap_err();
        assert!(missing.contains(&file.display().to_string()), "{missing}");
        std::fs::write(&file, "x".repeat(70_000)).unwrap();
        let large = Secret::of(format!("file:{}", file.display())).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(large.ends_with("it has more than 65536 bytes"), "{large}");
        assert!(Secret::of(String::new()).is_err());
    }

    #[test]
    fn a_secret_is_hidden_in_every_output() {
        let secret = Secret("canary".into());
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(serde_json::to_string(&secret).unwrap(), format!("{HIDDEN:?}"));
    }
}
