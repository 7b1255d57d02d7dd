//! What operators do: they pause something, and resume it.

use std::time::Duration;

use crate::{
    Failure,
    incidents::Scope,
    rng::Rng,
    stage::Stage,
    time::until,
    world::{BATCH, FEED, Kind},
    writers::{key_name, some_key},
};

/// How long it may take until what was paused is resumed. The database may be busy.
const RESUME: Duration = Duration::from_secs(60);

pub(super) async fn fault(stage: &Stage, rng: &mut Rng) -> Result<(), Failure> {
    // The webhooks' sink is not paused as a whole: its end would also tell the relays to let rejected events die.
    let (option, name, scopes) = match rng.below(4) {
        0 => {
            let (name, destination) = rng.pick([("batch", BATCH), ("feed", FEED)]);
            ("--sink", name.to_owned(), vec![Scope::Destination(destination)])
        }
        1 => {
            let key = some_key(rng);
            ("--key", key_name(key), vec![Scope::Key(key)])
        }
        2 => {
            let kind = rng.pick(Kind::ALL);
            ("--type", kind.name().to_owned(), vec![Scope::Kind(kind)])
        }
        _ => {
            let kinds = [Kind::HookOrder, Kind::HookNote].map(Scope::Kind);
            ("--type", "Hook*".to_owned(), kinds.to_vec())
        }
    };
    let what = match option {
        "--sink" => "sink paused",
        "--key" => "key paused",
        _ => "type paused",
    };
    let open = stage.shared.incidents.begin(what, scopes);
    let paused = stage.relays.operate(&["pause", option, &name, "--reason", "soak"]).await;
    if paused.is_ok() {
        stage.hold(rng.seconds(5, 20)).await;
    }
    // Also if the command failed: it may have paused all the same.
    let resumed = until("a pause ends", RESUME, || async {
        Ok(stage.relays.operate(&["resume", option, &name]).await.ok())
    })
    .await;
    stage.shared.incidents.end(open);
    paused?;
    resumed.map(|_| ())
}
