//! TLS, with an authority of our own.

use std::{fs, path::PathBuf, sync::Arc};

use postrider_http::{BatchConfig, Endpoint, HttpBatchSink};
use postrider_net::TlsFiles;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use crate::{events, letters, send, server::Server};

/// A folder of certificates that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
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

fn folder(name: &str) -> Folder {
    let folder = std::env::temp_dir().join(format!("postrider-http-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}

/// A server with this certificate; with an authority for clients, only those are let in.
async fn server(made: &rcgen::CertifiedKey<rcgen::KeyPair>, clients: Option<&rcgen::Certificate>) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = match clients {
        None => builder.unwrap().with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
            builder.unwrap().with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    Server::with(true, Some(TlsAcceptor::from(Arc::new(config)))).await
}

fn sink(server: &Server, files: TlsFiles) -> HttpBatchSink {
    let url = format!("https://localhost:{}", server.address().port());
    HttpBatchSink::new(BatchConfig::new(Endpoint::new(url).tls(files))).unwrap()
}

fn made(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

#[tokio::test]
async fn an_authority_from_a_file_is_trusted() {
    let (folder, made) = (folder("trusted"), made("localhost"));
    let server = server(&made, None).await;
    let files = TlsFiles { ca_file: Some(folder.file("ca.pem", &made.cert.pem())), ..Default::default() };
    assert_eq!(letters(&send(&sink(&server, files), &events(&["a", "b"])).await), "dd");
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_nothing() {
    let (folder, theirs) = (folder("untrusted"), made("localhost"));
    let server = server(&theirs, None).await;
    let other = folder.file("ca.pem", &made("localhost").cert.pem());
    for files in [TlsFiles::default(), TlsFiles { ca_file: Some(other), ..Default::default() }] {
        let outcomes = send(&sink(&server, files), &events(&["a"])).await;
        assert_eq!(letters(&outcomes), "u");
        assert!(outcomes[0].error().unwrap().contains("certificate"), "{outcomes:?}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_trusted() {
    let (folder, made) = (folder("name"), made("elsewhere"));
    let server = server(&made, None).await;
    let files = TlsFiles { ca_file: Some(folder.file("ca.pem", &made.cert.pem())), ..Default::default() };
    assert_eq!(letters(&send(&sink(&server, files), &events(&["a"])).await), "u");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_certificate_of_the_client_lets_it_in() {
    let (folder, ours, theirs) = (folder("client"), made("client"), made("localhost"));
    let server = server(&theirs, Some(&ours.cert)).await;
    let ca_file = Some(folder.file("ca.pem", &theirs.cert.pem()));
    let with = TlsFiles {
        ca_file: ca_file.clone(),
        certificate_file: Some(folder.file("cert.pem", &ours.cert.pem())),
        key_file: Some(folder.file("key.pem", &ours.signing_key.serialize_pem())),
    };
    assert_eq!(letters(&send(&sink(&server, with), &events(&["a"])).await), "d");
    let outcomes = send(&sink(&server, TlsFiles { ca_file, ..Default::default() }), &events(&["a"])).await;
    assert_ne!(letters(&outcomes), "d");
    assert_eq!(server.asked().len(), 1);
}
