//! Values that must not be seen: they are read, used, and never printed.

use std::{borrow::Cow, fmt, path::Path};

use postrider_net::files;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_saphyr::Spanned;

use super::placed::place;

/// What is printed in the place of a secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// What stands before the path of a file that holds a secret.
const IN_FILE: &str = "file:";

/// A password, a token or a signing key: as text, best by `${VARIABLE}`, or as `file:/path`.
#[derive(Clone)]
pub(crate) struct Secret(SecretString);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Secret {
    /// For finding out what changed in a configuration, where nobody guesses.
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
    /// The secret itself, or the one in the file that is named.
    fn of(text: String) -> Result<Self, String> {
        let text = match text.strip_prefix(IN_FILE) {
            // Editors and `echo` end a file with a line break, which belongs to no secret.
            Some(file) => files::read_text(Path::new(file), files::SECRET_BYTES_MAX)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| format!("cannot read the secret file {file}: {error}"))?,
            None => text,
        };
        if text.is_empty() {
            return Err(
                "a secret is empty: is its variable set? Leave the setting out if there is none".to_owned()
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
        json_schema!({ "type": "string", "writeOnly": true, "description": "best as `${VARIABLE}`, or `file:/path` for what stands in that file; never printed" })
    }
    fn inline_schema() -> bool {
        true
    }
}

/// A URL that may hold a password: of what is printed, everything between the scheme and the host and all after a `?` is left out, and by
/// HTTP the path too, since there are receivers that tell their senders apart by it.
#[derive(Clone)]
pub(crate) struct SecretUrl {
    secret: Secret,
    /// Line and column, where they are known.
    at: Option<(u64, u64)>,
}

impl PartialEq for SecretUrl {
    /// Wherever they stand.
    fn eq(&self, other: &Self) -> bool {
        self.secret == other.secret
    }
}

impl SecretUrl {
    pub(crate) fn expose(&self) -> &str {
        self.secret.expose()
    }

    /// Line and column, where they are known.
    pub(crate) fn at(&self) -> Option<(u64, u64)> {
        self.at
    }

    /// What may be shown of it.
    pub(crate) fn shown(&self) -> String {
        let url = self.expose();
        let Some((scheme, rest)) = url.split_once("://") else {
            // A path, or `sqlite:`: there is no place for a password but after a `?`, or in what is no URL at all.
            return if url.contains('@') { HIDDEN.to_owned() } else { before_query(url).to_owned() };
        };
        // The last @ before the path: a password may hold one itself.
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        // A password with a slash in it is no valid URL, and what follows it would be shown: then nothing is.
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
        Ok(Self { secret, at: place(referenced) })
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
            "a URL, best as `${VARIABLE}`, or `file:/path` for one that stands in that file; printed without user, password and parameters, and by HTTP without the path".into(),
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
