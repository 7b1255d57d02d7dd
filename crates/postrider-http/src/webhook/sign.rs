//! Signs requests as Standard Webhooks demands: HMAC-SHA256 over ID, time and body, with every secret.

use base64::{Engine, prelude::BASE64_STANDARD};
use postrider_core::ConfigError;
use ring::hmac;
use secrecy::ExposeSecret;

use crate::{WebhookConfig, limits};

/// The prefix of a secret.
const SECRET_PREFIX: &str = "whsec_";

/// Signs with every secret. It has no `Debug`.
pub(crate) struct Signer(Vec<hmac::Key>);

impl Signer {
    /// Errors do not repeat a secret.
    pub(crate) fn new(config: &WebhookConfig) -> Result<Self, ConfigError> {
        if config.secrets.is_empty() != config.unsigned {
            let found = if config.unsigned { "given beside unsigned" } else { "missing" };
            return Err(ConfigError::out_of_range(
                "secrets",
                found,
                "whsec_… secrets that sign, or else unsigned has to be set",
            ));
        }
        if config.secrets.len() > limits::SIGNING_SECRETS_MAX {
            let found = format!("{} of them", config.secrets.len());
            return Err(ConfigError::out_of_range(
                "secrets",
                found,
                format!("at most {}", limits::SIGNING_SECRETS_MAX),
            ));
        }
        let key = |secret: &secrecy::SecretString| {
            let text = secret.expose_secret();
            let bytes = BASE64_STANDARD.decode(text.strip_prefix(SECRET_PREFIX).unwrap_or(text));
            let bytes =
                bytes.map_err(|_| ConfigError::out_of_range("secrets", "not base64", "whsec_ and base64"))?;
            if !limits::SIGNING_SECRET_BYTES.contains(&bytes.len()) {
                let (least, most) =
                    (limits::SIGNING_SECRET_BYTES.start(), limits::SIGNING_SECRET_BYTES.end());
                let found = format!("one of {} bytes", bytes.len());
                return Err(ConfigError::out_of_range(
                    "secrets",
                    found,
                    format!("whsec_ and base64 of {least} to {most} bytes"),
                ));
            }
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        config.secrets.iter().map(key).collect::<Result<_, _>>().map(Self)
    }

    /// The value of `webhook-signature`; `None` if requests are not signed.
    pub(crate) fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> Option<String> {
        let mut value = String::new();
        for key in &self.0 {
            let mut context = hmac::Context::with_key(key);
            context.update(format!("{id}.{timestamp_s}.").as_bytes());
            context.update(body);
            if !value.is_empty() {
                value.push(' ');
            }
            value.push_str("v1,");
            value.push_str(&BASE64_STANDARD.encode(context.sign()));
        }
        Some(value).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn config() -> WebhookConfig {
        WebhookConfig::new(Endpoint::new("http://host"))
    }

    #[test]
    fn the_test_vector_of_the_reference_libraries_comes_out() -> Result<(), ConfigError> {
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        for secret in [SECRET, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            let signer = Signer::new(&config().secret(secret))?;
            assert_eq!(signer.sign(id, 1_614_265_330, body).as_deref(), Some(expected));
        }
        Ok(())
    }

    #[test]
    fn every_secret_signs_so_that_one_can_be_changed() -> Result<(), ConfigError> {
        let other = format!("whsec_{}", BASE64_STANDARD.encode([7; 64]));
        let alone = |secret: &str| Signer::new(&config().secret(secret))?.sign_test();
        let both = Signer::new(&config().secret(other.as_str()).secret(SECRET))?.sign_test()?;
        assert_eq!(both, format!("{} {}", alone(&other)?, alone(SECRET)?));
        Ok(())
    }

    impl Signer {
        fn sign_test(&self) -> Result<String, ConfigError> {
            self.sign("id", 1, b"body").ok_or_else(|| ConfigError::out_of_range("secrets", "none", "some"))
        }
    }

    #[test]
    fn a_secret_that_is_none_is_refused_without_being_repeated() {
        let long = BASE64_STANDARD.encode([7; 65]);
        let many = (0..=limits::SIGNING_SECRETS_MAX).fold(config(), |config, _| config.secret(SECRET));
        let cases = [
            (config(), "secrets is missing"),
            (config().secret(SECRET).unsigned(), "beside unsigned"),
            (config().secret("whsec_canary!"), "not base64"),
            (config().secret("whsec_Y2FuYXJ5"), "one of 6 bytes"),
            (config().secret(long), "one of 65 bytes"),
            (many, "9 of them"),
        ];
        for (config, why) in cases {
            let error = config.check().err().map_or_else(String::new, |error| error.to_string());
            assert!(error.contains(why), "{why}: {error}");
            for hidden in ["canary", "Y2FuYXJ5", "MfKQ9r8"] {
                assert!(!error.contains(hidden) && !format!("{config:?}").contains(hidden), "{error}");
            }
        }
        assert!(config().unsigned().check().is_ok());
    }
}
