//! TLS to a source whose server speaks it by itself.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use crate::{
    endpoint::Endpoint,
    place::{Folder, program, said},
    server::Lent,
};

const CANARY: &str = "canary-of-a-password";

/// An authority, and certificates of it.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for somebody, and its key.
    fn certify(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // OpenSSL takes a certificate for one that signed itself if it has the name of its issuer.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

async fn run(url: &str, statements: &[String]) {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    for sql in statements {
        sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut conn).await.unwrap();
    }
    conn.close().await.unwrap();
}

/// A MariaDB that has its certificate from this authority, and takes certificates of it. Files lie in its own folder, written by itself.
async fn mariadb(authority: &Authority) -> Lent {
    let mut server = Lent::borrow("mariadb").await;
    let mut conn = MySqlConnection::connect(&server.url).await.unwrap();
    let folder: String =
        sqlx::raw_sql("SELECT @@datadir").fetch_one(&mut conn).await.unwrap().try_get_unchecked(0).unwrap();
    let (certificate, key) = authority.certify("localhost");
    let files = [("ca.pem", authority.0.pem()), ("server-cert.pem", certificate), ("server-key.pem", key)];
    let files = files.map(|(name, text)| format!("SELECT '{text}' INTO DUMPFILE '{folder}{name}'"));
    run(&server.url, &files).await;
    server.stop();
    server.start_again();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_delivers_from_mariadb_by_tls_and_trusts_no_other_authority_and_no_other_name() {
    let (folder, endpoint) = (Folder::new(), Endpoint::start(|_, _| (200, String::new())));
    let (authority, stranger) = (Authority::new("an authority of tests"), Authority::new("a stranger"));
    let server = mariadb(&authority).await;
    let owner = server.url.replace("/mysql", "/shop");
    run(&server.url, &["CREATE DATABASE shop".to_owned()]).await;
    postrider::connect(&owner).await.unwrap().store.migrate().await.unwrap();
    let user = "'guest'@'127.0.0.1'";
    run(
        &owner,
        &[
            format!("CREATE USER {user} IDENTIFIED BY '{CANARY}' REQUIRE X509"),
            format!("GRANT ALL PRIVILEGES ON shop.* TO {user}"),
            "INSERT INTO postrider_event (event_type, payload) VALUES ('OrderPlaced', '7')".to_owned(),
        ],
    )
    .await;

    let file = |name: &str, text: &str| folder.write(name, text).display().to_string();
    let (certificate, key) = authority.certify("guest");
    let (certificate, key) = (file("guest.pem", &certificate), file("guest.key", &key));
    let (ca, other) = (file("ca.pem", &authority.0.pem()), file("other.pem", &stranger.0.pem()));
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let by = |host: &str| format!("mariadb://guest:{CANARY}@{host}:{port}/shop");
    let shown = format!("ssl-cert={certificate}&ssl-key={key}");
    let postrider = |args: &[&str], url: &str| {
        let text = format!(
            "log: {{ format: json, level: debug }}\noperations: {{ enabled: false }}\n\
             sources: {{ shop: {{ url: \"{url}\", routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
             sinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
            endpoint.url()
        );
        let config: PathBuf = folder.write("postrider.yaml", &text);
        let output = program().args(args).arg("--config").arg(config).output().unwrap();
        assert!(!said(&output).contains(CANARY), "{}", said(&output));
        output
    };

    let identity = "ssl-mode=VERIFY_IDENTITY";
    for (url, told) in [
        (format!("{}?{identity}&ssl-ca={other}&{shown}", by("localhost")), "UnknownIssuer"),
        // Without a file those of the operating system are trusted.
        (format!("{}?{identity}&{shown}", by("localhost")), "UnknownIssuer"),
        (format!("{}?ssl-mode=VERIFY_CA&{shown}", by("localhost")), "UnknownIssuer"),
        (format!("{}?{identity}&ssl-ca={ca}&{shown}", by("127.0.0.1")), "certificate not valid for name"),
        (format!("{}?{identity}&ssl-ca={ca}", by("localhost")), "Access denied"),
        (format!("{}?ssl-mode=DISABLED", by("localhost")), "Access denied"),
    ] {
        for args in [["run", "--once"].as_slice(), &["check", "--connect"]] {
            let output = postrider(args, &url);
            assert_eq!(output.status.code(), Some(3), "{url} {}", said(&output));
            assert!(said(&output).contains(told), "{url}: {told} is not in {}", said(&output));
        }
    }
    assert!(endpoint.answered().is_empty());

    let good = format!("ssl-ca={ca}&{shown}");
    for (args, url) in [
        (["check", "--connect"].as_slice(), format!("{}?ssl-mode=VERIFY_CA&{good}", by("127.0.0.1"))),
        (&["check", "--connect"], format!("{}?{identity}&{good}", by("localhost"))),
        (&["run", "--once"], format!("{}?{identity}&{good}", by("localhost"))),
    ] {
        let output = postrider(args, &url);
        assert!(output.status.success(), "{url} {}", said(&output));
    }
    let bodies: Vec<_> = endpoint.answered().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [json!([7])]);
}
