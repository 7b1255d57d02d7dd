//! The documents that lead from another system to this one: what they configure can be used.

use std::path::PathBuf;

use crate::place::{Folder, program, said};

/// What a relay in a test is told besides.
pub(crate) const QUIET: &str = "log: { format: json }\noperations: { enabled: false }\n";

/// The configuration that stands in a document.
pub(crate) fn yaml(document: &str) -> &str {
    let (_, block) = document.split_once("```yaml\n").expect("the document has a configuration");
    block.split_once("```").unwrap().0
}

#[test]
fn the_configuration_in_each_document_for_those_who_come_from_elsewhere_is_a_good_one() {
    let folder = Folder::new();
    let documents = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/relay"));
    let mut checked = 0;
    for document in std::fs::read_dir(documents).unwrap().map(|entry| entry.unwrap().path()) {
        if !document.file_name().unwrap().to_string_lossy().starts_with("from-") {
            continue;
        }
        let file = folder.write("postrider.yaml", yaml(&std::fs::read_to_string(&document).unwrap()));
        let mut check = program();
        check.args(["check", "--config"]).arg(file).envs([
            ("DATABASE_URL", "postgres://shop@localhost/shop"),
            ("API_URL", "https://api.example"),
            ("API_TOKEN", "token"),
            ("KAFKA", "localhost:9092"),
            ("RABBITMQ_URL", "amqp://localhost"),
            ("USERS_URL", "https://users.example/hook"),
            ("USERS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ]);
        let check = check.output().unwrap();
        assert!(check.status.success(), "{}: {}", document.display(), said(&check));
        checked += 1;
    }
    assert!(checked >= 3);
}
