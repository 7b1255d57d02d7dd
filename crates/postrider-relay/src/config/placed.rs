//! A text of the file, and where it stands.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{Location, Spanned};

/// A text of the file, and where it stands. Two of them are equal if their texts are: a line more above changes nothing.
#[derive(Debug, Clone, Eq)]
pub(crate) struct Placed {
    pub(crate) value: String,
    /// Line and column, where they are known.
    pub(crate) at: Option<(u64, u64)>,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Line and column, where they are known.
pub(super) fn place(location: Location) -> Option<(u64, u64)> {
    (location != Location::UNKNOWN).then(|| (location.line(), location.column()))
}

impl<'de> Deserialize<'de> for Placed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self { value, at: place(referenced) })
    }
}

impl Serialize for Placed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl JsonSchema for Placed {
    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
    fn inline_schema() -> bool {
        true
    }
}
