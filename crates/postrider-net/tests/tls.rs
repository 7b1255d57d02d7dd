//! TLS from files.

#![expect(clippy::unwrap_used, reason = "tests may")]

use std::{fs, path::PathBuf};

use postrider_net::TlsFiles;

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("postrider-net-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn error(files: &TlsFiles) -> String {
    files.client_config().map_or_else(|error| error.to_string(), |_| "no error".to_owned())
}

#[test]
fn without_files_the_system_is_trusted() {
    assert!(TlsFiles::default().client_config().is_ok());
}

#[test]
fn an_authority_and_a_certificate_of_the_client_come_from_files() {
    let folder = Folder::new("good");
    let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let certificate = folder.file("cert.pem", &made.cert.pem());
    let files = TlsFiles {
        ca_file: Some(certificate.clone()),
        certificate_file: Some(certificate),
        key_file: Some(folder.file("key.pem", &made.signing_key.serialize_pem())),
    };
    assert!(files.client_config().unwrap().client_auth_cert_resolver.has_certs());
}

#[test]
fn a_wrong_file_is_named_with_what_it_should_be_and_not_quoted() {
    let folder = Folder::new("bad");
    let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let certificate_file = Some(folder.file("cert.pem", &made.cert.pem()));
    let missing = Some(folder.0.join("missing.pem"));
    let broken =
        Some(folder.file("broken.pem", "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----"));
    let foreign = Some(folder.file("foreign.pem", &other.signing_key.serialize_pem()));
    let none = TlsFiles::default;
    let cases = [
        (TlsFiles { ca_file: missing.clone(), ..none() }, "missing.pem"),
        (TlsFiles { ca_file: Some(folder.file("empty.pem", "")), ..none() }, "there is none in it"),
        (TlsFiles { certificate_file: certificate_file.clone(), ..none() }, "key_file is missing"),
        (TlsFiles { key_file: broken.clone(), ..none() }, "certificate_file is missing"),
        (
            TlsFiles { certificate_file: certificate_file.clone(), key_file: missing, ..none() },
            "a private key",
        ),
        (
            TlsFiles { certificate_file: certificate_file.clone(), key_file: broken, ..none() },
            "the key of certificate_file",
        ),
        (TlsFiles { certificate_file, key_file: foreign, ..none() }, "the key of certificate_file"),
    ];
    for (files, why) in cases {
        let error = error(&files);
        assert!(error.contains(why) && !error.contains("canary"), "{files:?}: {error}");
    }
}
