//! What cannot be: the message says what and what to do, and the exit status says of which kind.

mod command;

use std::fs;

use command::{demo, fresh, postrider, texts};

/// Asserts that the demo on this file ends with status 3 and says all of this.
fn assert_unusable(db: &str, says: &[&str]) {
    let run = demo(["--events", "1", "--exit", "--json", "--db", db]);
    let (stdout, stderr) = texts(&run);
    assert_eq!(run.status.code(), Some(3), "{stderr}");
    assert!(stdout.is_empty(), "{stdout}");
    for text in [db, "hint: "].iter().chain(says) {
        assert!(stderr.contains(text), "{text:?} is not in: {stderr}");
    }
}

#[test]
fn a_folder_that_does_not_exist_is_named() {
    let db = fresh("no-folder").replace("shop.db", "nowhere/shop.db");
    assert_unusable(&db, &["cannot open", "nowhere does not exist"]);
}

#[test]
fn a_folder_in_place_of_a_file_is_told() {
    let db = fresh("a-folder");
    fs::create_dir(&db).unwrap();
    assert_unusable(&db, &["is a folder"]);
}

#[test]
fn a_file_that_is_not_a_database_is_told_and_not_touched() {
    let db = fresh("not-a-database");
    let text = "Dear diary, today I was taken for a database. ".repeat(100);
    fs::write(&db, &text).unwrap();
    assert_unusable(&db, &["not a database"]);
    assert_eq!(fs::read_to_string(&db).unwrap(), text);
}

#[test]
fn a_file_that_may_only_be_read_is_told() {
    let db = fresh("read-only");
    demo(["--events", "1", "--exit", "--json", "--db", &db]);
    let mut permissions = fs::metadata(&db).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&db, permissions).unwrap();
    // Root may write to anything, so there the file is opened for reading only.
    let is_root = fs::OpenOptions::new().append(true).open(&db).is_ok();
    let db = if is_root { format!("sqlite:{db}?mode=ro") } else { db };
    assert_unusable(&db, &["a SQLite file that may be written"]);
}

#[test]
fn a_file_with_tables_of_somebody_elses_shop_is_told_and_not_touched() {
    let db = fresh("foreign");
    fs::write(&db, "").unwrap();
    command::sql(&db, "CREATE TABLE shop_order (id INTEGER PRIMARY KEY)");
    assert_unusable(&db, &["did not create", "nothing was changed"]);
}

#[test]
fn memory_is_no_file() {
    let run = demo(["--db", ":memory:"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(texts(&run).1.contains("--db must name a file"));
}

#[test]
fn a_wrong_flag_or_value_is_a_usage_error() {
    for args in [&["demo", "--evnets", "3"][..], &["demo", "--events", "many"], &["dance"], &[]] {
        let run = postrider().args(args).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{args:?}");
        assert!(!run.stderr.is_empty() && run.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_log_filter_that_is_none_is_a_usage_error() {
    let run = postrider().args(["demo", "--exit"]).env("POSTRIDER_LOG", "loud=very").output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(texts(&run).1.contains("POSTRIDER_LOG"));
}
