//! A SQLite file that is replaced or removed under a running engine. Open connections keep the old file, whatever lies at its path.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider::{Delivery, Outbox, Store, sqlite::SqliteStore};
use postrider_testkit::conformance::Failure;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tracing::Level;

use crate::{
    database::TempFile,
    log::Log,
    time::{TIMEOUT, until},
};

const LEASE: Duration = Duration::from_secs(3);

/// Where a database in WAL mode has its files.
fn side_files(path: &Path) -> [std::path::PathBuf; 2] {
    ["-wal", "-shm"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

/// An outbox in a file, and what came from it.
struct Scene {
    file: TempFile,
    outbox: Outbox,
    came: Arc<Mutex<Vec<String>>>,
    copies: AtomicU64,
}

impl Scene {
    async fn set(file: TempFile, store: SqliteStore) -> Result<Self, Failure> {
        let came = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&came);
        let outbox = Outbox::builder()
            .store(store)
            .lease(LEASE)
            .poll(Duration::from_millis(10), Duration::from_millis(50))
            .on("Tested", move |delivery: Delivery| {
                noted.lock().unwrap().push(delivery.payload().as_text().unwrap_or_default().to_owned());
                std::future::ready(())
            })
            .start()
            .await?;
        Ok(Self { file, outbox, came, copies: AtomicU64::new(0) })
    }

    /// Writes through a connection that is opened now and closed afterwards.
    async fn write(path: &Path, payload: &str) -> Result<(), Failure> {
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(path)).await?;
        let insert = sqlx::query("INSERT INTO postrider_event (event_type, payload) VALUES ('Tested', ?)");
        insert.bind(payload.to_owned()).execute(&pool).await?;
        pool.close().await;
        Ok(())
    }

    async fn comes(&self, payload: &str) -> Result<(), Failure> {
        let came = async || Ok(self.came.lock().unwrap().iter().any(|one| one == payload).then_some(()));
        until(&format!("{payload} is delivered"), TIMEOUT, came).await
    }

    /// Makes another file with one event in it, and puts it where the outbox is.
    async fn put_another(&self, payload: &str, side_files_stay: bool) -> Result<(), Failure> {
        let copy = self.file.beside(&format!("copy{}.db", self.copies.fetch_add(1, SeqCst)));
        let path = copy.to_str().ok_or("a path is text")?;
        let store = SqliteStore::connect(path).await?;
        store.migrate().await?;
        store.close().await;
        Self::write(&copy, payload).await?;
        if !side_files_stay {
            for side in side_files(&self.file.path()) {
                let _ = fs::remove_file(side);
            }
        }
        Ok(fs::rename(copy, self.file.path())?)
    }

    async fn is_not_ready_because(&self, reason: &str) -> Result<(), Failure> {
        let told = async || {
            let reasons = self.outbox.health().reasons;
            Ok(reasons.iter().any(|one| one.contains(reason)).then_some(()))
        };
        until(&format!("not ready: {reason}"), TIMEOUT, told).await
    }

    async fn is_ready(&self) -> Result<(), Failure> {
        until("ready", TIMEOUT, async || Ok(self.outbox.health().is_ready().then_some(()))).await
    }
}

async fn opened(name: &'static str) -> Result<Scene, Failure> {
    let file = TempFile::new(name)?;
    let store = SqliteStore::connect(file.path().to_str().ok_or("a path is text")?).await?;
    let scene = Scene::set(file, store).await?;
    Scene::write(&scene.file.path(), "before").await?;
    scene.comes("before").await?;
    Ok(scene)
}

#[tokio::test]
async fn a_file_that_another_is_put_in_place_of_is_delivered_from() -> Result<(), Failure> {
    let (log, _guard) = Log::listen();
    let scene = opened("replaced.db").await?;
    for round in 0..3 {
        scene.put_another(&format!("restored {round}"), false).await?;
        scene.comes(&format!("restored {round}")).await?;
        Scene::write(&scene.file.path(), &format!("after {round}")).await?;
        scene.comes(&format!("after {round}")).await?;
        assert_eq!(log.count(Level::ERROR, "the database went back in time"), round + 1);
    }
    scene.is_ready().await?;
    assert!(scene.outbox.shutdown().await.released);
    Ok(())
}

/// The log of the old file beside the new one: anyone who opens them reads a mixture of both.
#[tokio::test]
async fn a_file_that_was_replaced_without_its_write_ahead_log_is_not_opened() -> Result<(), Failure> {
    let scene = opened("mixed.db").await?;
    scene.put_another("restored", true).await?;
    scene.is_not_ready_because("mixed.db-wal").await?;
    assert_eq!(*scene.came.lock().unwrap(), ["before"]);
    for side in side_files(&scene.file.path()) {
        fs::remove_file(side)?;
    }
    scene.comes("restored").await?;
    scene.is_ready().await?;
    scene.outbox.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn a_file_that_was_removed_makes_the_engine_not_ready_until_there_is_one() -> Result<(), Failure> {
    let scene = opened("removed.db").await?;
    fs::remove_file(scene.file.path())?;
    scene.is_not_ready_because("was removed").await?;
    assert!(!scene.file.path().exists(), "it is not made anew");
    scene.put_another("restored", false).await?;
    scene.comes("restored").await?;
    scene.is_ready().await?;
    scene.outbox.shutdown().await;
    Ok(())
}

/// The program goes on with the old file: what it writes there would be delivered by nobody.
#[tokio::test]
async fn a_file_that_is_replaced_under_a_pool_of_the_programs_own_makes_the_engine_not_ready()
-> Result<(), Failure> {
    let file = TempFile::new("own.db")?;
    let options = SqliteConnectOptions::new().filename(file.path()).create_if_missing(true);
    let pool = SqlitePool::connect_with(options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)).await?;
    let scene = Scene::set(file, SqliteStore::new(pool)).await?;
    Scene::write(&scene.file.path(), "before").await?;
    scene.comes("before").await?;
    scene.put_another("restored", false).await?;
    scene.is_not_ready_because("start the program again").await?;
    assert_eq!(*scene.came.lock().unwrap(), ["before"]);
    scene.outbox.shutdown().await;
    Ok(())
}
