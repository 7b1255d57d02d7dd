//! Files of lines that several write to.

use crate::place::{Folder, Relay, eventually, insert, postrider, said};

#[tokio::test(flavor = "multi_thread")]
async fn two_sources_write_to_one_file_and_a_check_beside_them_finds_it_well() {
    let (folder, other) = (Folder::new(), Folder::new());
    for (place, payload) in [(&folder, "1"), (&other, "2")] {
        insert(&mut place.database().await, "OrderPlaced", "Order:1", payload).await;
    }
    let lines = folder.path("events.ndjson");
    let route = "routes: [{ event_type: \"*\", sink: lines }]";
    let text = format!(
        "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\" }}\n\
         sources:\n  shop: {{ url: {}, {route} }}\n  other: {{ url: {}, {route} }}\n\
         sinks:\n  lines: {{ file: {{ path: {} }} }}\n",
        folder.path("shop.db").display(),
        other.path("shop.db").display(),
        lines.display()
    );
    let file = folder.write("relay.yaml", &text);
    let mut relay = Relay::start(&file, &[]);
    eventually("the events of both sources are there", async || {
        std::fs::read_to_string(&lines).is_ok_and(|text| text.lines().count() == 2)
    })
    .await;
    let check = postrider(&["check", "--connect", "--config", file.to_str().unwrap()]);
    assert!(check.status.success(), "{}", said(&check));
    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);
}

#[test]
fn a_check_leaves_no_file_behind() {
    let folder = Folder::new();
    let (lines, database) = (folder.path("events.ndjson"), folder.path("shop.db"));
    let text = format!(
        "sources: {{ shop: {{ url: {}, routes: [{{ event_type: \"*\", sink: lines }}] }} }}\n\
         sinks: {{ lines: {{ file: {{ path: {} }} }} }}\n",
        database.display(),
        lines.display()
    );
    let file = folder.write("relay.yaml", &text);
    postrider(&["check", "--connect", "--config", file.to_str().unwrap()]);
    assert!(!lines.exists());
}
