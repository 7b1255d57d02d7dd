//! What an operator has told to wait.

use postrider_core::{
    Timestamp,
    event::limits::ERROR_CHARS_MAX,
    store::{PAUSES_MAX, Pause, SUBJECT_CHARS_MAX, Subject},
};

use super::{
    Checked, StoreHarness,
    scene::{Scene, claimed_ids, ids},
};

/// A fresh store, unless it has no room for pauses: then it says so.
async fn scene<H: StoreHarness>() -> Result<Option<Scene<H>>, super::Failure> {
    let scene = Scene::<H>::fresh().await?;
    if scene.keeps().pauses {
        return Ok(Some(scene));
    }
    assert!(scene.store.pause(&Subject::Source, "").await.is_err());
    assert!(scene.store.resume(&Subject::Source).await.is_err());
    assert!(scene.store.pauses().await.is_err());
    Ok(None)
}

fn subjects(pauses: &[Pause]) -> Vec<Subject> {
    let mut subjects: Vec<_> = pauses.iter().map(|pause| pause.subject.clone()).collect();
    subjects.sort();
    subjects
}

/// What is paused is listed, the longest first, each with its time and its reason, whatever it is a pause of.
pub async fn what_is_paused_is_listed_with_its_time_and_its_reason<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    assert!(scene.store.pauses().await?.is_empty());
    let mut all = [
        Subject::Source,
        Subject::event_type("Order*"),
        Subject::key("Order:1"),
        Subject::sink("audit"),
        Subject::Rejected("audit".to_owned()),
        Subject::Brake("audit".to_owned()),
    ];
    for subject in &all {
        let paused = scene.store.pause(subject, &format!("because of {subject}")).await?;
        assert!(paused.new && paused.pause.subject == *subject);
    }
    let pauses = scene.store.pauses().await?;
    all.sort();
    assert_eq!(subjects(&pauses), all);
    assert!(pauses.is_sorted_by_key(|pause| pause.since));
    for pause in &pauses {
        assert!(pause.since > Timestamp::EPOCH || !scene.store.features().shared_clock, "{pause:?}");
        assert_eq!(pause.reason, format!("because of {}", pause.subject));
    }
    Ok(())
}

/// Pausing what is paused changes nothing: the first pause keeps its time and its reason.
pub async fn pausing_twice_keeps_the_first_pause<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    let subject = Subject::key("k");
    let first = scene.store.pause(&subject, "first").await?;
    let second = scene.store.pause(&subject, "second").await?;
    assert!(first.new && !second.new);
    assert_eq!(first.pause, second.pause);
    assert_eq!(scene.store.pauses().await?, [first.pause]);
    Ok(())
}

/// Of many who pause the same at once, one begins the pause, and none of them fails.
pub async fn of_many_who_pause_the_same_at_once_one_begins_it<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let store = scene.store.clone();
            tokio::spawn(async move { store.pause(&Subject::event_type("T"), "now").await })
        })
        .collect();
    let mut begun = 0;
    for task in tasks {
        begun += usize::from(task.await??.new);
    }
    assert_eq!(begun, 1);
    assert_eq!(scene.store.pauses().await?.len(), 1);
    Ok(())
}

/// Resuming ends one pause and says what it was; where there is none, it says that.
pub async fn resuming_ends_one_pause_and_says_what_it_was<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    let (one, other) = (Subject::key("k"), Subject::sink("k"));
    let paused = scene.store.pause(&one, "why not").await?;
    scene.store.pause(&other, "").await?;
    assert_eq!(scene.store.resume(&one).await?, Some(paused.pause));
    assert_eq!(scene.store.resume(&one).await?, None);
    assert_eq!(subjects(&scene.store.pauses().await?), [other]);
    assert!(scene.store.pause(&one, "again").await?.new);
    Ok(())
}

/// A sink that rejects everything, its brake and a pause of it are three subjects of one name: each begins and ends by itself.
pub async fn a_sink_its_rejections_and_its_brake_are_told_apart<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    let (sink, name) = (Subject::sink("shop"), "shop".to_owned());
    let (rejected, brake) = (Subject::Rejected(name.clone()), Subject::Brake(name));
    assert!(scene.store.pause(&rejected, "it took none").await?.new);
    assert_eq!(scene.store.resume(&sink).await?, None, "the sink itself is not paused");
    assert_eq!(scene.store.resume(&brake).await?, None);
    assert!(scene.store.pause(&brake, "let them die").await?.new);
    assert!(!scene.store.pause(&rejected, "again").await?.new);
    let ended = scene.store.resume(&rejected).await?;
    assert_eq!(ended.map(|pause| (pause.subject, pause.reason)), Some((rejected, "it took none".to_owned())));
    assert_eq!(subjects(&scene.store.pauses().await?), std::slice::from_ref(&brake));
    assert!(scene.store.resume(&brake).await?.is_some());
    assert!(scene.store.pauses().await?.is_empty());
    Ok(())
}

/// Names are told apart by their bytes, and by what they are names of.
pub async fn names_are_told_apart_by_their_bytes<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    let names = ["k", "K", "k ", " k", "é", "e\u{301}", "%", "_", "'; DROP TABLE postrider_pause; --"];
    for name in names {
        for subject in [Subject::event_type(name), Subject::key(name), Subject::sink(name)] {
            assert!(scene.store.pause(&subject, "").await?.new, "{subject}");
        }
    }
    assert_eq!(scene.store.pauses().await?.len(), names.len() * 3);
    for name in names {
        let ended = scene.store.resume(&Subject::key(name)).await?;
        assert_eq!(ended.map(|pause| pause.subject), Some(Subject::key(name)));
    }
    assert_eq!(scene.store.pauses().await?.len(), names.len() * 2);
    Ok(())
}

/// The longest name is kept whole, a reason of any length is cut, and a name that nothing can have is refused.
pub async fn a_name_that_nothing_can_have_is_refused<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    let longest = Subject::key("é".repeat(SUBJECT_CHARS_MAX));
    let paused = scene.store.pause(&longest, &"a\0b".repeat(ERROR_CHARS_MAX)).await?;
    assert_eq!(paused.pause.reason.chars().count(), ERROR_CHARS_MAX);
    for name in ["", "a\0b", &"x".repeat(SUBJECT_CHARS_MAX + 1)] {
        assert!(scene.store.pause(&Subject::key(name), "").await.is_err(), "{name:?}");
    }
    assert_eq!(scene.store.pauses().await?, [paused.pause]);
    Ok(())
}

/// There is an end to how much can be paused at a time, and room again when something is resumed.
pub async fn there_is_an_end_to_how_much_can_be_paused<H: StoreHarness>() -> Checked {
    let Some(scene) = scene::<H>().await? else { return Ok(()) };
    for n in 0..PAUSES_MAX {
        scene.store.pause(&Subject::key(format!("key {n}")), "").await?;
    }
    let one_more = Subject::key("one more");
    assert!(scene.store.pause(&one_more, "").await.is_err());
    assert!(!scene.store.pause(&Subject::key("key 7"), "").await?.new, "it is paused");
    assert_eq!(scene.store.pauses().await?.len(), PAUSES_MAX);
    scene.store.resume(&Subject::key("key 7")).await?;
    assert!(scene.store.pause(&one_more, "").await?.new);
    Ok(())
}

/// A pause is a word to engines and no more: the store goes on giving what it is asked for. It outlives a migration.
pub async fn a_pause_changes_no_event_and_outlives_a_migration<H: StoreHarness>() -> Checked {
    let Some(mut scene) = scene::<H>().await? else { return Ok(()) };
    scene.store.pause(&Subject::Source, "").await?;
    scene.store.pause(&Subject::key("k"), "").await?;
    let written = scene.keyed::<2>("k").await?;
    scene.store.migrate().await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&written));
    assert_eq!(scene.store.pauses().await?.len(), 2);
    Ok(())
}
