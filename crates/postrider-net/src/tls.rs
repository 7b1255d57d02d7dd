//! The TLS configuration of clients: rustls with ring on every platform.

use std::{path::Path, path::PathBuf, sync::Arc};

use postrider_core::ConfigError;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::files;

/// TLS settings. By default, certificates are checked against the authorities of the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(schemars::JsonSchema, serde::Deserialize, serde::Serialize),
    serde(deny_unknown_fields, default),
    schemars(rename = "Tls")
)]
pub struct TlsFiles {
    /// PEM file of the authorities to trust instead.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client's certificate chain. Requires `key_file`.
    pub certificate_file: Option<PathBuf>,
    /// PEM file of the key of the client's certificate. Requires `certificate_file`.
    pub key_file: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads the files. The configuration brings ring as its own crypto provider.
    pub fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder =
            builder.map_err(|error| ConfigError::out_of_range("tls", "on", format!("possible: {error}")))?;
        let builder = builder.with_root_certificates(self.roots()?);
        match (&self.certificate_file, &self.key_file) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate_file), Some(key_file)) => {
                let chain = certificates("certificate_file", certificate_file)?;
                // The error is not shown: it may quote the file.
                let key = files::read(key_file, files::SECRET_BYTES_MAX).ok();
                let key = key.and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok()).ok_or_else(|| {
                    wrong_file("key_file", key_file, "a PEM file with a private key that can be read")
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    wrong_file("key_file", key_file, format!("the key of certificate_file: {error}"))
                })
            }
            (Some(_), None) => {
                Err(ConfigError::out_of_range("key_file", "missing", "given, as certificate_file is"))
            }
            (None, Some(_)) => {
                Err(ConfigError::out_of_range("certificate_file", "missing", "given, as key_file is"))
            }
        }
    }

    fn roots(&self) -> Result<RootCertStore, ConfigError> {
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            Some(file) => {
                for certificate in certificates("ca_file", file)? {
                    roots.add(certificate).map_err(|error| {
                        wrong_file("ca_file", file, format!("made of certificates of authorities: {error}"))
                    })?;
                }
            }
            // Unreadable system certificates are skipped, as other programs do. If none is left, no server is trusted.
            None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        }
        Ok(roots)
    }
}

fn certificates(setting: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = files::read(file, files::CERTIFICATES_BYTES_MAX)
        .map_err(|error| wrong_file(setting, file, format!("a PEM file with certificates: {error}")))?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong_file(setting, file, "a PEM file with certificates; there is none in it")),
        Err(error) => Err(wrong_file(setting, file, format!("a PEM file with certificates: {error}"))),
    }
}

fn wrong_file(setting: &'static str, file: &Path, allowed: impl Into<String>) -> ConfigError {
    ConfigError::out_of_range(setting, file.display(), allowed)
}
