//! Payloads are for receivers: no log has them, at any level.

use crate::{
    database::{Database, Kind},
    place::{Folder, fresh_name, program, said},
    server,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_no_queue_takes_is_logged_without_its_payload() {
    let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
    let config = format!(
        "sources:\n  shop:\n    url: {}\n    routes: [{{ event_type: \"*\", sink: out, attempts: 1 }}]\n\
         sinks:\n  out: {{ rabbitmq: {{ url: \"{}\", routing_key: {} }} }}\n",
        database.url,
        server::url("POSTRIDER_TEST_RABBITMQ_URL"),
        fresh_name("nobody-"),
    );
    let file = folder.write("postrider.yaml", &config);
    for level in ["", "trace"] {
        database
            .run(
                "INSERT INTO postrider_event (event_type, payload) VALUES ('Order', '{\"card\":\"canary\"}')",
            )
            .await;
        let mut run = program();
        run.args(["run", "--once", "--config"]).arg(&file).env("POSTRIDER_LOG", level);
        let output = run.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "it was returned and is dead: {said:.2000}");
        // As text, or as the numbers of its bytes.
        let numbers = "canary".bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
        let line = said.lines().find(|line| line.contains("canary") || line.contains(&numbers));
        assert_eq!(line, None, "at the level {level:?}");
    }
}
