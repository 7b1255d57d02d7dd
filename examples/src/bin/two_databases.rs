//! Two databases in one program: an outbox for each, a handler that both share, and one that stops while the other goes
//! on.
//!
//! ```text
//! cargo run -p postrider-examples --bin two_databases
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;

use postrider::{Delivery, Event, Outbox, Sink, handler, sqlite::SqliteStore};
use sqlx::SqlitePool;
use tokio::sync::mpsc;

/// One whole stack: a database, its outbox, its own routes.
async fn open(mailer: Arc<dyn Sink>) -> postrider::Result<(SqlitePool, Outbox)> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let pool = store.pool().clone();
    let outbox = Outbox::builder().store(store).sink("MailRequested", mailer).start().await?;
    Ok((pool, outbox))
}

async fn request_mail(outbox: &Outbox, pool: &SqlitePool, from: &str) -> postrider::Result<()> {
    let event = Event::json_text("MailRequested", "{}").tenant(from);
    outbox.transaction(pool, async |tx| tx.write(event).await).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sent, mut mails) = mpsc::unbounded_channel();
    let mailer = handler(move |mail: Delivery| {
        let sent = sent.clone();
        async move { sent.send(mail) }
    });
    let (shop_pool, shop) = open(mailer.clone()).await?;
    let (billing_pool, billing) = open(mailer).await?;

    for (outbox, pool, name) in [(&shop, &shop_pool, "shop"), (&billing, &billing_pool, "billing")] {
        request_mail(outbox, pool, name).await?;
        let mail = mails.recv().await.ok_or("both have stopped")?;
        println!("mail from {}", mail.tenant_id().unwrap_or_default());
    }

    shop.shutdown().await;
    println!("shop is stopped");

    // A stopped outbox still writes; the event waits for the next start.
    request_mail(&shop, &shop_pool, "shop").await?;
    request_mail(&billing, &billing_pool, "billing").await?;
    let mail = mails.recv().await.ok_or("both have stopped")?;
    println!("mail from {}", mail.tenant_id().unwrap_or_default());

    billing.shutdown().await;
    println!(
        "shop pending {}, billing pending {}",
        shop.stats().await?.pending,
        billing.stats().await?.pending
    );
    Ok(())
}
