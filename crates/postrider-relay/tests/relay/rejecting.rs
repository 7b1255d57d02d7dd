//! A sink that rejects everything: few events die, operators are told what to do, and they decide.

use serde_json::{Value, json};

use crate::{
    place::{Folder, Receiver, Relay, eventually, get, insert, postrider, said},
    server::{Database, Kind},
};

const EVENTS: u64 = 60;

/// Most events that die before the brake holds.
const DEAD_MAX: u64 = 10;

/// A relay from a database with events of different keys to a receiver that answers 400.
struct Stage {
    folder: Folder,
    receiver: Receiver,
    file: String,
    _relay: Relay,
    operations: String,
}

impl Stage {
    async fn start(folder: Folder, url: &str) -> Self {
        let receiver = Receiver::start().await;
        receiver.answers(400);
        let text = format!(
            "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\" }}\nsources:\n  shop:\n    url: \"{url}\"\n    poll: {{ max: 50ms }}\n\
             \x20   routes: [{{ event_type: \"*\", sink: orders }}]\nsinks: {{ orders: {{ http: {{ url: \"{}\" }} }} }}\n",
            receiver.url
        );
        let file = folder.write("relay.yaml", &text);
        let mut relay = Relay::start(&file, &[]);
        let operations = relay.operations();
        Self { folder, receiver, file: file.to_str().unwrap().to_owned(), _relay: relay, operations }
    }

    async fn on_sqlite() -> Self {
        let folder = Folder::new();
        let mut database = folder.database().await;
        for n in 0..EVENTS {
            insert(&mut database, "OrderPlaced", &format!("Order:{n}"), &n.to_string()).await;
        }
        let url = folder.path("shop.db").display().to_string();
        Self::start(folder, &url).await
    }

    /// What a command answers to a program.
    fn asked(&self, command: &[&str]) -> Value {
        let output = postrider(&[command, &["--config", &self.file, "--json"]].concat());
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command says to people.
    fn told(&self, command: &[&str]) -> String {
        let output = postrider(&[command, &["--config", &self.file]].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    fn status(&self) -> Value {
        self.asked(&["status"])["shop"].take()
    }

    /// The kinds of the pauses that `status` lists.
    fn pauses(&self) -> Vec<String> {
        let status = self.status();
        let kinds = status["pauses"].as_array().unwrap().iter().map(|pause| pause["kind"].as_str().unwrap());
        kinds.map(str::to_owned).collect()
    }

    /// Waits until the brake holds and operators are told of it, in every place where they look.
    async fn until_braked(&self) {
        eventually("the notice is there", async || self.pauses() == ["rejected"]).await;
        let status = self.status();
        let dead = status["dead"].as_u64().unwrap();
        assert!((1..=DEAD_MAX).contains(&dead), "{status}");
        assert_eq!(status["pending"], json!(EVENTS - dead), "{status}");
        assert_eq!(status["pauses"][0]["name"], json!("orders"));
        let remedy = "`postrider resume --sink orders`";
        assert!(status["pauses"][0]["hint"].as_str().unwrap().contains(remedy), "{status}");
        let text = self.told(&["status"]);
        assert!(text.contains("shop: the sink orders has rejected everything since 2"), "{text}");
        assert!(text.contains(remedy), "{text}");
        self.why_names_it();
        let (_, metrics) = get(&format!("{}/metrics", self.operations), None).await;
        let down = "\npostrider_breaker_open{source=\"shop\",sink=\"orders\"} 1\n";
        assert!(metrics.contains(down), "{metrics}");
        self.until_metric_is(1).await;
        let (ready, health) = get(&format!("{}/health/ready", self.operations), None).await;
        assert_eq!(ready, 200, "a restart would bring no sink back: {health}");
        let health: Value = serde_json::from_str(&health).unwrap();
        assert_eq!(health["sinks_down"]["shop"], json!(["orders"]), "{health}");
    }

    async fn until_metric_is(&self, value: u8) {
        let line = format!("\npostrider_rejecting{{source=\"shop\",sink=\"orders\"}} {value}\n");
        let is_so = async || get(&format!("{}/metrics", self.operations), None).await.1.contains(&line);
        eventually("the metric shows it", is_so).await;
    }

    /// An event that waits says that its sink is the reason.
    fn why_names_it(&self) {
        let waits = |key: &str| {
            let why = self.asked(&["why", "--key", key]);
            (why["status"] != json!("dead")).then_some(why)
        };
        let keys = (0..EVENTS).map(|n| format!("Order:{n}"));
        let (key, why) = keys.filter_map(|key| waits(&key).map(|why| (key, why))).next().unwrap();
        assert_eq!(why["paused"][0]["kind"], json!("rejected"), "{why}");
        let text = self.told(&["why", "--key", &key]);
        assert!(text.contains("  waits: the sink orders has rejected everything since 2"), "{text}");
        // Without a configuration nobody knows where it goes.
        let url = self.folder.path("shop.db");
        if url.exists() {
            let text = said(&postrider(&["why", "--key", &key, "--url", url.to_str().unwrap()]));
            assert!(text.contains("also waits if it goes there, which only a configuration can tell: the sink orders has rejected everything"), "{text}");
        }
    }

    async fn until_mended(&self) {
        let dead = self.status()["dead"].as_u64().unwrap();
        self.receiver.answers(200);
        let all = usize::try_from(EVENTS - dead).unwrap();
        eventually("what waited is delivered", async || self.receiver.payloads().len() == all).await;
        eventually("the notice is gone", async || self.pauses().is_empty()).await;
        self.until_metric_is(0).await;
        let status = self.status();
        assert_eq!((&status["pending"], &status["dead"]), (&json!(0), &json!(dead)), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_rejects_everything_kills_ten_and_gets_the_rest_once_it_is_mended() {
    let stage = Stage::on_sqlite().await;
    stage.until_braked().await;
    stage.until_mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql_a_sink_that_rejects_everything_kills_ten_and_gets_the_rest_once_it_is_mended() {
    let mut database = Database::new(Kind::Postgres).await;
    postrider::connect(&database.url).await.unwrap().store.migrate().await.unwrap();
    let rows: Vec<_> = (0..EVENTS).map(|n| format!("('OrderPlaced', 'Order:{n}', '{n}')")).collect();
    let insert = "INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES";
    database.run(&format!("{insert} {}", rows.join(", "))).await;
    let stage = Stage::start(Folder::new(), &database.url).await;
    stage.until_braked().await;
    stage.until_mended().await;
    drop(stage);
    database.drop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_lets_what_a_sink_rejects_die() {
    let stage = Stage::on_sqlite().await;
    stage.until_braked().await;
    let text = stage.told(&["resume", "--sink", "orders"]);
    assert!(text.contains("for an hour, events that the sink orders rejects become dead letters"), "{text}");
    eventually("all are dead", async || stage.status()["dead"] == json!(EVENTS)).await;
    assert_eq!(stage.pauses(), ["brake"]);
    let text = stage.told(&["status"]);
    assert!(text.contains("shop: the brake of the sink orders is released since 2"), "{text}");
    assert_eq!(stage.receiver.payloads(), Vec::<Value>::new());
}
