//! The address of a server, parsed from a URL. Its password is kept as a secret from the start, and the URL itself is not kept.

use std::fmt;

use percent_encoding::percent_decode_str;
use postrider_core::ConfigError;
use secrecy::SecretString;
use url::Url;

/// A scheme that a server's URL may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// The scheme's name, before `://`.
    pub name: &'static str,
    /// The default port.
    pub port: u16,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// A server and the credentials for it.
///
/// `Debug` and `Display` do not show the password; `Display` does not show the user either.
///
/// ```
/// use postrider_net::{Address, Scheme};
///
/// const SCHEMES: &[Scheme] = &[Scheme { name: "redis", port: 6379, tls: false }];
/// let address = Address::parse("url", "redis://shop:secret@cache.example/2", SCHEMES)?;
/// assert_eq!(address.to_string(), "redis://cache.example:6379/2");
/// assert!(!format!("{address:?}").contains("secret"));
/// # Ok::<(), postrider_core::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Address {
    /// The scheme of the URL.
    pub scheme: Scheme,
    /// The host name or IP address; an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<SecretString>,
    /// The path without its leading slash; `None` if it is empty.
    pub path: Option<String>,
}

impl Address {
    /// Parses a URL. `setting` is the name of the setting that holds it, for errors.
    pub fn parse(setting: &'static str, url: &str, schemes: &[Scheme]) -> Result<Self, ConfigError> {
        // Errors do not repeat the text, which may contain a password.
        let wrong = |value: &str, why: &str| {
            ConfigError::out_of_range(setting, value, format!("a URL such as {}{why}", examples(schemes)))
        };
        let parsed = Url::parse(url).map_err(|error| wrong("not a URL", &format!(" ({error})")))?;
        let Some(scheme) = schemes.iter().find(|scheme| scheme.name == parsed.scheme()) else {
            return Err(wrong("of another kind of server", ""));
        };
        let host = parsed.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("without a host", ""))?;
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(wrong(
                "with something behind a ? or a #",
                "; everything else is a setting of its own",
            ));
        }
        let text = |encoded: &str| {
            let decoded = percent_decode_str(encoded).decode_utf8();
            decoded.map(String::from).map_err(|_| wrong("with % signs that are no UTF-8", ""))
        };
        let username = Some(text(parsed.username())?).filter(|name| !name.is_empty());
        let password = parsed.password().map(text).transpose()?.map(SecretString::from);
        let path = parsed.path().strip_prefix('/').filter(|path| !path.is_empty());
        Ok(Self {
            scheme: *scheme,
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: parsed.port().unwrap_or(scheme.port),
            username,
            password,
            path: path.map(text).transpose()?,
        })
    }

    /// Host and port, to connect to.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port, path, .. } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{host}{close}:{port}", scheme.name)?;
        path.as_deref().map_or(Ok(()), |path| write!(f, "/{path}"))
    }
}

fn examples(schemes: &[Scheme]) -> String {
    let examples: Vec<_> =
        schemes.iter().map(|scheme| format!("{}://host:{}", scheme.name, scheme.port)).collect();
    examples.join(" or ")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    const SCHEMES: &[Scheme] =
        &[Scheme { name: "plain", port: 10, tls: false }, Scheme { name: "plains", port: 20, tls: true }];

    fn parse(url: &str) -> Result<Address, ConfigError> {
        Address::parse("url", url, SCHEMES)
    }

    #[test]
    fn a_url_is_taken_apart() -> Result<(), ConfigError> {
        let address = parse("plains://user%40shop:p%2Fw@host:99/a%2Fb")?;
        assert!(address.scheme.tls);
        assert_eq!(address.host_and_port(), ("host", 99));
        assert_eq!(address.username.as_deref(), Some("user@shop"));
        assert_eq!(address.password.as_ref().map(|secret| secret.expose_secret()), Some("p/w"));
        assert_eq!(address.path.as_deref(), Some("a/b"));
        Ok(())
    }

    #[test]
    fn what_is_not_said_is_the_default_or_nothing() -> Result<(), ConfigError> {
        let address = parse("plain://[::1]/")?;
        assert_eq!(address.host_and_port(), ("::1", 10));
        assert!(address.username.is_none() && address.password.is_none() && address.path.is_none());
        assert_eq!(address.to_string(), "plain://[::1]:10");
        Ok(())
    }

    #[test]
    fn a_password_without_a_user_is_one() -> Result<(), ConfigError> {
        let address = parse("plain://:word@host")?;
        assert!(address.username.is_none() && address.password.is_some());
        Ok(())
    }

    #[test]
    fn what_is_wrong_is_said_without_what_is_secret() {
        for (url, why) in [
            ("canary", "not a URL"),
            ("other://u:canary@host", "of another kind of server"),
            ("plain://u:canary@/x", "host"),
            ("plain://u:p@host?password=canary", "behind a ?"),
            ("plain://u:canary%ff@host", "no UTF-8"),
            ("plain://u:canary@host:99999", "not a URL"),
        ] {
            let error =
                parse(url).map_or_else(|error| format!("{error} {error:?}"), |found| format!("{found}"));
            assert!(error.contains(why) && error.contains("plain://host:10"), "{url}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
