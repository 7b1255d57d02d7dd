//! TLS before a server that speaks none: with a certificate of an authority of its own, and for clients that have one of it too.

use std::{error::Error, fs, io, net::SocketAddr, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};

type Failure = Box<dyn Error + Send + Sync>;

/// What a client says before TLS begins.
#[derive(Debug, Clone, Copy)]
enum Opening {
    /// Nothing.
    Tls,
    /// PostgreSQL's `SSLRequest`, which is answered with one letter.
    Postgres,
}

/// A message of eight bytes, and the number that stands for TLS in the place of a version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

impl Opening {
    async fn pass(self, client: &mut TcpStream) -> io::Result<()> {
        let Self::Postgres = self else { return Ok(()) };
        let mut asked = [0; SSL_REQUEST.len()];
        client.read_exact(&mut asked).await?;
        if asked != SSL_REQUEST {
            return Err(io::Error::other("a client that does not ask for TLS"));
        }
        client.write_all(b"S").await
    }
}

/// Takes TLS from clients that have a certificate of its authority, and passes on what they say to a server in the clear. It ends
/// when it is dropped.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    /// Holds what clients need, and goes with this.
    folder: PathBuf,
    accepting: JoinHandle<()>,
}

impl TlsFront {
    /// Listens on a free port, as `localhost`, and forwards to a server that is named by `host:port`.
    pub async fn start(server: impl Into<String>) -> Result<Self, Failure> {
        Self::begin(server.into(), Opening::Tls).await
    }

    /// The same before PostgreSQL, whose clients ask for TLS in the clear before they begin it. One that does not ask is cut off.
    pub async fn for_postgres(server: impl Into<String>) -> Result<Self, Failure> {
        Self::begin(server.into(), Opening::Postgres).await
    }

    async fn begin(server: String, opening: Opening) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut authority = CertificateParams::new([])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for its own issuer's where both have the same name.
        authority.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let (key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
        let certificate = CertificateParams::new(["localhost".to_owned()])?.signed_by(&key, &authority)?;
        let client = CertificateParams::new(["client".to_owned()])?.signed_by(&client_key, &authority)?;

        let folder =
            std::env::temp_dir().join(format!("postrider-tls-{}-{}", std::process::id(), address.port()));
        fs::create_dir_all(&folder)?;
        let files = [
            ("ca.pem", authority.pem()),
            ("client.pem", client.pem()),
            ("client.key", client_key.serialize_pem()),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text)?;
        }

        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone())?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build()?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?,
            )?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(accept(listener, acceptor, server, opening));
        Ok(Self { address, folder, accepting })
    }

    /// The port that it listens on; the name that its certificate is for is `localhost`.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The certificate of the authority.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A certificate for a client.
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// The key of that certificate.
    pub fn key_file(&self) -> PathBuf {
        self.folder.join("client.key")
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: String, opening: Opening) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((mut client, _)) = listener.accept().await else { continue };
        let (acceptor, server) = (acceptor.clone(), server.clone());
        connections.spawn(async move {
            opening.pass(&mut client).await?;
            let mut client = acceptor.accept(client).await?;
            let mut server = TcpStream::connect(server).await?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await?;
            Ok::<_, io::Error>(())
        });
        // Those that have ended.
        while connections.try_join_next().is_some() {}
    }
}
