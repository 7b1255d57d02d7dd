//! What a crash leaves behind, and what was there before.

use std::fs;

use crate::{Folder, deliver, event};

fn line(id: &str) -> String {
    let mut line = Vec::new();
    postrider_file::line::push_line(&mut line, &event(id));
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn lines_are_added_to_what_is_there() {
    let folder = Folder::new();
    deliver(&folder.sink(), &["1", "2"]).await;
    deliver(&folder.sink(), &["3"]).await;
    assert_eq!(folder.ids(), ["1", "2", "3"]);
}

#[tokio::test]
async fn wherever_a_crash_cut_the_last_line_it_is_cut_off_and_nothing_before_it() {
    let whole = line("1") + &line("2");
    for end in line("1").len()..=whole.len() {
        let folder = Folder::new();
        fs::write(folder.path(), &whole[..end]).unwrap();
        // What was cut was never acknowledged, and so it comes again.
        deliver(&folder.sink(), &["2", "3"]).await;
        let expected: &[&str] = if end == whole.len() { &["1", "2", "2", "3"] } else { &["1", "2", "3"] };
        assert_eq!(folder.ids(), expected, "cut at {end}");
    }
}

#[tokio::test]
async fn an_unfinished_line_may_be_all_there_is_and_longer_than_what_is_read_at_once() {
    for size in [3, 70_000, 1_000_000] {
        let folder = Folder::new();
        fs::write(folder.path(), format!("{{\"id\":\"{}", "x".repeat(size))).unwrap();
        deliver(&folder.sink(), &["1"]).await;
        assert_eq!(folder.ids(), ["1"]);
        let folder = Folder::new();
        fs::write(folder.path(), line("0") + &format!("{{\"id\":\"{}", "x".repeat(size))).unwrap();
        deliver(&folder.sink(), &["1"]).await;
        assert_eq!(folder.ids(), ["0", "1"]);
    }
}

#[tokio::test]
async fn an_end_that_is_not_ours_is_kept_and_ended() {
    for foreign in ["a note", "{\"time\":1}", "x", "\0\0\0"] {
        let folder = Folder::new();
        fs::write(folder.path(), format!("{}{foreign}", line("0"))).unwrap();
        deliver(&folder.sink(), &["1"]).await;
        assert_eq!(
            fs::read_to_string(folder.path()).unwrap(),
            format!("{}{foreign}\n{}", line("0"), line("1"))
        );
    }
    let folder = Folder::new();
    let huge = "x".repeat(17 * 1024 * 1024);
    fs::write(folder.path(), &huge).unwrap();
    deliver(&folder.sink(), &["1"]).await;
    assert_eq!(fs::read_to_string(folder.path()).unwrap(), format!("{huge}\n{}", line("1")));
}

#[tokio::test]
async fn a_file_that_was_renamed_is_let_go_of_when_it_is_asked_for() {
    let folder = Folder::new();
    let sink = folder.sink();
    deliver(&sink, &["1"]).await;
    let rotated = folder.0.join("events.1");
    fs::rename(folder.path(), &rotated).unwrap();
    deliver(&sink, &["2"]).await;
    sink.reopen();
    deliver(&sink, &["3"]).await;
    assert_eq!(crate::ids(&fs::read_to_string(rotated).unwrap()), ["1", "2"]);
    assert_eq!(folder.ids(), ["3"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_deleted_is_made_anew_because_lines_in_it_would_be_lost() {
    let folder = Folder::new();
    let sink = folder.sink();
    deliver(&sink, &["1"]).await;
    fs::remove_file(folder.path()).unwrap();
    deliver(&sink, &["2"]).await;
    assert_eq!(folder.ids(), ["2"]);
}

#[tokio::test]
async fn batches_that_are_sent_at_once_do_not_mix() {
    let folder = Folder::new();
    let sink = folder.sink();
    let ids: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    let batches: Vec<Vec<&str>> =
        ids.chunks(3).map(|batch| batch.iter().map(String::as_str).collect()).collect();
    let sending = batches.iter().map(|batch| deliver(&sink, batch));
    futures_util::future::join_all(sending).await;
    let written = folder.ids();
    assert_eq!(written.len(), 60);
    for batch in written.chunks(3) {
        let first: usize = batch[0].parse().unwrap();
        assert_eq!(batch, [first, first + 1, first + 2].map(|number| number.to_string()));
    }
}
