//! TLS as a client: rustls with ring, the same on every platform.

use std::{path::Path, path::PathBuf, sync::Arc};

use postrider_core::ConfigError;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::files;

/// The files that TLS needs, in PEM. None of them is needed where the server's certificate comes from an authority that the system
/// trusts and the server asks for no certificate of the client's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities to trust, instead of those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and what leads from it to an authority. Needs `key_file`.
    pub certificate_file: Option<PathBuf>,
    /// The key of the client's certificate. Needs `certificate_file`.
    pub key_file: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads the files. The provider of cryptography is ring, for this configuration alone.
    pub fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| wrong("tls", "on", format!("possible: {error}")))?;
        let builder = builder.with_root_certificates(self.roots()?);
        match (&self.certificate_file, &self.key_file) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate_file), Some(key_file)) => {
                let chain = certificates("certificate_file", certificate_file)?;
                // The reason is not repeated: it may quote what is in the file.
                let key = files::read(key_file, files::SECRET_BYTES_MAX).ok();
                let key = key.and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok()).ok_or_else(|| {
                    wrong_file("key_file", key_file, "a PEM file with a private key that can be read")
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    wrong_file("key_file", key_file, format!("the key of certificate_file: {error}"))
                })
            }
            (Some(_), None) => Err(wrong("key_file", "missing", "given, as certificate_file is")),
            (None, Some(_)) => Err(wrong("certificate_file", "missing", "given, as key_file is")),
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
            // What the system has that cannot be read is passed over, as everybody does; if nothing is left, no server is trusted.
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
    wrong(setting, &file.display().to_string(), allowed)
}

fn wrong(setting: &'static str, value: &str, allowed: impl Into<String>) -> ConfigError {
    ConfigError::OutOfRange { setting, value: value.to_owned(), allowed: allowed.into() }
}
