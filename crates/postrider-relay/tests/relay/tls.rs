//! TLS to a source.

use postrider_testkit::proxy::tls::TlsFront;
use serde_json::json;

use crate::{
    place::{Folder, Receiver, postrider, said},
    server::{Database, Kind},
};

/// The URL of a database as it is reached through TLS, as the reference of the configuration says it.
fn through(front: &TlsFront, database: &Database, host: &str, authority: &TlsFront) -> String {
    let (user, place) = database.url.rsplit_once('@').unwrap();
    let (_, path) = place.split_once('/').unwrap();
    format!(
        "{user}@{host}:{}/{path}&sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
        front.port(),
        authority.ca_file().display(),
        front.certificate_file().display(),
        front.key_file().display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_delivers_from_postgresql_by_tls_and_trusts_neither_another_authority_nor_another_name() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = Database::new(Kind::Postgres).await;
    let (_, place) = database.url.rsplit_once('@').unwrap();
    let server = place.split_once('/').unwrap().0.to_owned();
    let front = TlsFront::for_postgres(server.clone()).await.unwrap();
    let stranger = TlsFront::for_postgres(server).await.unwrap();
    let config = |url: &str| {
        let text = format!(
            "sources: {{ shop: {{ url: \"{url}\", routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
             sinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
            receiver.url
        );
        folder.write("relay.yaml", &text).to_str().unwrap().to_owned()
    };
    assert!(postrider(&["init", "--url", &database.url]).status.success());
    database.run("INSERT INTO postrider_event (event_type, payload) VALUES ('OrderPlaced', '7')").await;

    let plain = through(&front, &database, "localhost", &front).replace("verify-full", "disable");
    for (url, told) in [
        (through(&front, &database, "localhost", &stranger), "invalid peer certificate: BadSignature"),
        (through(&front, &database, "127.0.0.1", &front), "certificate not valid for name"),
        (plain, ""),
    ] {
        let file = config(&url);
        for args in [["run", "--once"].as_slice(), &["check", "--connect"]] {
            let output = postrider(&[args, &["--config", &file]].concat());
            assert_eq!(output.status.code(), Some(3), "{url} {}", said(&output));
            assert!(said(&output).contains(told), "{told} is not in {}", said(&output));
        }
    }
    assert!(receiver.payloads().is_empty());

    let file = config(&through(&front, &database, "localhost", &front));
    for args in [["check", "--connect"].as_slice(), &["run", "--once"]] {
        let output = postrider(&[args, &["--config", &file]].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_eq!(receiver.payloads(), [json!(7)]);
    database.drop(&[]).await;
}
