//! `#[publish]`: what a function returns becomes an event, in the transaction that it was given. S4-3, S4-4
#![cfg(all(feature = "macros", feature = "sqlite"))]
#![deny(warnings)] // what the macro writes must not make the caller's build warn
#![allow(clippy::unwrap_used, reason = "clippy takes functions beside the tests for no tests")]

use std::{
    cell::Cell,
    collections::BTreeMap,
    error::Error as StdError,
    sync::{Arc, Mutex},
};

use postrider::{
    Delivery, Error, EventType, Metrics, Outbox, OwnedTx, Tx, publish,
    sqlite::{SqliteStore, SqliteTx},
};
use sqlx::{Sqlite, Transaction};

type Order = BTreeMap<&'static str, i64>;

fn order(id: i64, total: i64) -> Order {
    Order::from([("id", id), ("total", total)])
}

#[derive(Debug)]
enum ShopError {
    NothingToBuy,
    Outbox(Error),
    Database(sqlx::Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> Self {
        Self::Outbox(error)
    }
}

impl From<sqlx::Error> for ShopError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// How many events each insert had.
#[derive(Default)]
struct Inserts(Mutex<Vec<u64>>);

impl Metrics for Inserts {
    fn written(&self, events: u64) {
        self.0.lock().unwrap().push(events);
    }
}

struct Shop {
    store: SqliteStore,
    outbox: Outbox,
    inserts: Arc<Inserts>,
    delivered: Arc<Mutex<Vec<Delivery>>>,
}

impl Shop {
    async fn open() -> Self {
        let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
        sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)")
            .execute(store.pool())
            .await
            .unwrap();
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let (seen, inserts) = (delivered.clone(), Arc::new(Inserts::default()));
        let outbox = Outbox::builder()
            .store(store.clone())
            .metrics(inserts.clone())
            .known_types(["OrderPlaced", "LineAdded", "order.shipped"])
            .otherwise(move |delivery: Delivery| {
                seen.lock().unwrap().push(delivery);
                std::future::ready(())
            })
            .start()
            .await
            .unwrap();
        Self { store, outbox, inserts, delivered }
    }

    /// Type, key, tenant and payload of everything that was delivered, in order.
    async fn delivered(&self) -> Vec<String> {
        self.outbox.drain().await.unwrap();
        let text = |delivery: &Delivery| {
            let (key, tenant) = (delivery.key().unwrap_or("-"), delivery.tenant_id().unwrap_or("-"));
            format!("{} {key} {tenant} {}", delivery.event_type(), delivery.payload().as_text().unwrap())
        };
        self.delivered.lock().unwrap().iter().map(text).collect()
    }

    async fn orders(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(self.store.pool()).await.unwrap()
    }
}

/// Places an order.
#[publish(event_type = "OrderPlaced", aggregate = ("Order", |order| order["id"]), tenant = |_| "acme")]
async fn place(tx: &mut Tx<SqliteTx>, id: i64, total: i64) -> Result<Order, ShopError> {
    if total == 0 {
        return Err(ShopError::NothingToBuy);
    }
    sqlx::query("INSERT INTO orders VALUES (?, ?)").bind(id).bind(total).execute(tx.conn()).await?;
    Ok(order(id, total))
}

#[tokio::test]
async fn the_ok_value_is_written_in_the_transaction_and_returned_unchanged() {
    let shop = Shop::open().await;
    let placed = shop.outbox.transaction(&shop.store, async |tx| place(tx, 7, 12).await).await.unwrap();
    assert_eq!(placed, order(7, 12));
    assert_eq!(shop.delivered().await, [r#"OrderPlaced Order:7 acme {"id":7,"total":12}"#]);
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn an_error_writes_nothing_even_if_the_transaction_commits() {
    let shop = Shop::open().await;
    let mut tx = shop.outbox.begin(&shop.store).await.unwrap();
    assert!(matches!(place(&mut tx, 1, 0).await, Err(ShopError::NothingToBuy)));
    place(&mut tx, 2, 12).await.unwrap();
    // The row is there already: the statement's own error comes out, by `?`.
    assert!(matches!(place(&mut tx, 2, 12).await, Err(ShopError::Database(sqlx::Error::Database(_)))));
    tx.commit().await.unwrap();
    assert_eq!(shop.delivered().await, [r#"OrderPlaced Order:2 acme {"id":2,"total":12}"#]);
}

#[tokio::test]
async fn what_is_rolled_back_takes_the_event_with_it() {
    let shop = Shop::open().await;
    let mut tx = shop.outbox.begin(&shop.store).await.unwrap();
    place(&mut tx, 1, 12).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(shop.delivered().await.is_empty());
    assert_eq!(shop.orders().await, 0);
}

#[publish(event_type = "LineAdded", each, key = |line| line["order"])]
async fn add_lines(tx: &mut Tx<SqliteTx>, lines: i64) -> Result<Vec<Order>, Error> {
    let _ = tx.conn();
    Ok((1..=lines).map(|line| Order::from([("line", line), ("order", 7)])).collect())
}

#[tokio::test]
async fn a_list_is_one_event_for_each_element_in_order_and_in_one_insert() {
    let shop = Shop::open().await;
    let lines = shop.outbox.transaction(&shop.store, async |tx| add_lines(tx, 3).await).await.unwrap();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        shop.delivered().await,
        [
            r#"LineAdded 7 - {"line":1,"order":7}"#,
            r#"LineAdded 7 - {"line":2,"order":7}"#,
            r#"LineAdded 7 - {"line":3,"order":7}"#,
        ]
    );
    assert_eq!(*shop.inserts.0.lock().unwrap(), [3]);
}

#[tokio::test]
async fn an_empty_list_writes_nothing() {
    let shop = Shop::open().await;
    shop.outbox.transaction(&shop.store, async |tx| add_lines(tx, 0).await).await.unwrap();
    assert!(shop.delivered().await.is_empty());
}

#[publish(event_type = "LineAdded")]
async fn add_all(tx: &mut Tx<SqliteTx>) -> Result<Vec<i64>, Error> {
    Ok(vec![1, 2])
}

#[tokio::test]
async fn without_each_a_list_is_one_event() {
    let shop = Shop::open().await;
    shop.outbox.transaction(&shop.store, async |tx| add_all(tx).await).await.unwrap();
    assert_eq!(shop.delivered().await, ["LineAdded - - [1,2]"]);
}

#[publish(event_type = "OrderVanished")]
async fn vanish(tx: &mut Tx<SqliteTx>) -> Result<i64, ShopError> {
    Ok(7)
}

#[tokio::test]
async fn an_event_that_cannot_be_written_is_the_functions_error() {
    let shop = Shop::open().await;
    let failed = shop.outbox.transaction(&shop.store, async |tx| vanish(tx).await).await;
    assert!(matches!(failed, Err(ShopError::Outbox(Error::UnknownType { .. }))), "{failed:?}");
    assert!(shop.delivered().await.is_empty());
}

#[publish(event_type = "OrderPlaced", aggregate = ("Order", |order| order["id"]), outbox = outbox, tx = transaction)]
async fn place_in_own(
    outbox: &Outbox,
    transaction: &mut Transaction<'_, Sqlite>,
    id: i64,
) -> Result<Order, ShopError> {
    sqlx::query("INSERT INTO orders VALUES (?, 1)").bind(id).execute(&mut **transaction).await?;
    Ok(order(id, 1))
}

#[tokio::test]
async fn with_an_outbox_the_transaction_is_the_callers_own() {
    let shop = Shop::open().await;
    let mut tx = shop.store.pool().begin().await.unwrap();
    place_in_own(&shop.outbox, &mut tx, 1).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = shop.store.pool().begin().await.unwrap();
    place_in_own(&shop.outbox, &mut tx, 2).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(shop.delivered().await, [r#"OrderPlaced Order:2 - {"id":2,"total":1}"#]);
}

#[derive(EventType)]
#[event_type(rename_all = "dot.case")]
enum Happened {
    OrderShipped,
}

struct Warehouse {
    outbox: Outbox,
    shipped: i64,
}

impl Warehouse {
    /// A list in the caller's own transaction, on a method that changes its own state.
    #[publish(event_type = Happened::OrderShipped, each, key = "shipping", outbox = self.outbox)]
    async fn ship(&mut self, tx: &mut Transaction<'_, Sqlite>, count: usize) -> Result<Vec<i64>, Error> {
        let _ = &tx;
        self.shipped += 1;
        Ok(vec![self.shipped; count])
    }

    /// Whatever the database.
    #[publish(event_type = Happened::OrderShipped, key = key)]
    async fn ship_on<O: OwnedTx>(&self, key: &str, mut tx: &mut Tx<O>) -> Result<i64, Error> {
        let again = &mut tx;
        let _ = again.conn();
        Ok(self.shipped)
    }
}

#[tokio::test]
async fn methods_and_enums_publish_too() {
    let shop = Shop::open().await;
    let mut warehouse = Warehouse { outbox: shop.outbox.clone(), shipped: 0 };
    let mut tx = shop.store.pool().begin().await.unwrap();
    assert_eq!(warehouse.ship(&mut tx, 2).await.unwrap(), [1, 1]);
    tx.commit().await.unwrap();
    let shipped = shop.outbox.transaction(&shop.store, async |tx| warehouse.ship_on("shipping", tx).await);
    assert_eq!(shipped.await.unwrap(), 1);
    assert_eq!(shop.delivered().await, ["order.shipped shipping - 1"; 3]);
}

trait Desk {
    fn sell<'a>(
        &self,
        tx: &mut Tx<SqliteTx>,
        names: &'a [String],
    ) -> impl Future<Output = Result<&'a [String], Box<dyn StdError + Send + Sync>>> + Send;
}

impl Desk for Warehouse {
    #[publish(event_type = "LineAdded", each, key = |name| name.as_str())]
    async fn sell<'a>(
        &self,
        tx: &mut Tx<SqliteTx>,
        names: &'a [String],
    ) -> Result<&'a [String], Box<dyn StdError + Send + Sync>> {
        match names {
            [] => Err(Box::new(std::fmt::Error)), // becomes a `dyn Error` as in any function
            names => Ok(names),
        }
    }
}

#[tokio::test]
async fn a_slice_that_outlives_the_transaction_can_be_the_value() {
    let shop = Shop::open().await;
    let warehouse = Warehouse { outbox: shop.outbox.clone(), shipped: 0 };
    let names = ["a".to_owned(), "b".to_owned()];
    let mut tx = shop.outbox.begin(&shop.store).await.unwrap();
    let sold = warehouse.sell(&mut tx, &names).await.unwrap();
    assert!(warehouse.sell(&mut tx, &[]).await.unwrap_err().is::<std::fmt::Error>());
    tx.commit().await.unwrap();
    assert_eq!(sold, names);
    let mut delivered = shop.delivered().await;
    delivered.sort();
    assert_eq!(delivered, [r#"LineAdded a - "a""#, r#"LineAdded b - "b""#]);
}

/// Calls things as the macro might call them.
#[publish(event_type = "LineAdded", key = format!("{built}{kept}{value}{event}{error}{outcome}"), outbox = never)]
async fn name_clashes(
    tx: &mut Transaction<'_, Sqlite>,
    never: Outbox,
    (built, kept, value): (u8, u8, u8),
    (event, error, outcome): (u8, u8, u8),
    outbox: &str,
    r#type: u8,
) -> Result<String, Error> {
    let _ = (tx, never);
    Ok(format!("{outbox}{}", r#type))
}

#[tokio::test]
async fn no_name_of_the_callers_is_met() {
    let shop = Shop::open().await;
    let mut tx = shop.store.pool().begin().await.unwrap();
    name_clashes(&mut tx, shop.outbox.clone(), (1, 2, 3), (4, 5, 6), "x", 7).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(shop.delivered().await, [r#"LineAdded 123456 - "x7""#]);
}

/// Takes what it is given by value, one of them not to be shared between threads, and does not say what it returns.
#[publish(event_type = "LineAdded")]
async fn consume(
    tx: &mut Tx<SqliteTx>,
    text: String,
    cell: Cell<u8>,
    (left, _): (i64, i64),
) -> Result<impl Shown, Error> {
    let _ = tx.conn();
    tokio::task::yield_now().await;
    cell.set(cell.get() + 1);
    Ok(format!("{text}{}{left}", cell.get()))
}

trait Shown: std::fmt::Display + Send {}

impl Shown for String {}

#[tokio::test]
async fn the_future_stays_one_that_can_be_spawned() {
    let shop = Shop::open().await;
    let (outbox, store) = (shop.outbox.clone(), shop.store.clone());
    let spawned = tokio::spawn(async move {
        let mut tx = outbox.begin(&store).await?;
        let shown = consume(&mut tx, "x".to_owned(), Cell::new(1), (3, 4)).await?.to_string();
        tx.commit().await?;
        Ok::<_, Error>(shown)
    });
    assert_eq!(spawned.await.unwrap().unwrap(), "x23");
    assert_eq!(shop.delivered().await, [r#"LineAdded - - "x23""#]);
}
