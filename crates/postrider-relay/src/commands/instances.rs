//! Describes the instances that deliver from an outbox.

use postrider::store::{Instance, Instances};
use serde_json::{Value, json};

use super::target::Outbox;
use crate::{
    failure::Failure,
    terminal::{count, plain},
};

/// Printed when no instance is alive.
const NO_INSTANCE: &str = "no instance is alive: nothing is delivered";

/// The instances of an outbox; `None` where the store does not record them.
pub(super) struct Delivering(Option<Instances>);

impl Delivering {
    pub(super) async fn of(outbox: &Outbox) -> Result<Self, Failure> {
        Ok(Self(outbox.store.instances().await?))
    }

    /// A sentence for each instance, and one if some lanes have no owner.
    pub(super) fn sentences(&self) -> Vec<String> {
        let Some(Instances { alive, lanes }) = &self.0 else { return Vec::new() };
        alive.iter().map(|instance| sentence(instance, *lanes)).chain(self.hindrance()).collect()
    }

    /// Why no instance delivers some events, if that is so.
    pub(super) fn hindrance(&self) -> Option<String> {
        let Instances { alive, lanes } = self.0.as_ref()?;
        let held: usize = alive.iter().map(|instance| instance.lanes.len()).sum();
        match (alive.is_empty(), (*lanes as usize).saturating_sub(held)) {
            (true, _) => Some(NO_INSTANCE.to_owned()),
            (false, 0) => None,
            (false, free) => {
                let lanes = count((*lanes).into(), "lane");
                Some(format!(
                    "no instance holds {free} of {lanes}: their events wait until one takes them over"
                ))
            }
        }
    }

    /// The instances as JSON.
    pub(super) fn to_json(&self) -> Value {
        let of = |instance: &Instance| {
            let Instance { name, lanes, until } = instance;
            json!({ "name": name, "lanes": lanes, "until": until.to_string() })
        };
        json!(self.0.as_ref().map(|instances| instances.alive.iter().map(of).collect::<Vec<_>>()))
    }
}

fn sentence(instance: &Instance, of: u32) -> String {
    let Instance { name, lanes, until } = instance;
    let name = plain(name);
    match lanes.len() {
        0 => format!("instance {name} stands by; its membership lasts until {until}"),
        held => {
            let of = count(of.into(), "lane");
            format!("instance {name} holds {held} of {of} until {until} unless it renews them")
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider::Timestamp;

    use super::*;

    fn delivering(instances: &[(&str, &[u32])]) -> Delivering {
        let instance = |(name, lanes): &(&str, &[u32])| Instance {
            name: (*name).to_owned(),
            lanes: lanes.to_vec(),
            until: Timestamp::EPOCH,
        };
        Delivering(Some(Instances { alive: instances.iter().map(instance).collect(), lanes: 4 }))
    }

    #[test]
    fn lanes_without_an_owner_are_reported_beside_the_others() {
        let all = delivering(&[("a", &[0, 1]), ("b", &[2, 3]), ("c", &[])]);
        assert_eq!((all.sentences().len(), all.hindrance()), (3, None));
        assert!(all.sentences()[2].contains("stands by"), "{:?}", all.sentences());
        let some = delivering(&[("a", &[0, 1, 2])]);
        assert!(some.sentences()[1].starts_with("no instance holds 1 of 4 lanes"), "{:?}", some.sentences());
        assert_eq!(delivering(&[]).sentences(), [NO_INSTANCE]);
    }

    #[test]
    fn a_store_that_cannot_tell_is_not_taken_for_one_without_instances() {
        let unknown = Delivering(None);
        assert!(unknown.sentences().is_empty() && unknown.to_json().is_null());
    }
}
