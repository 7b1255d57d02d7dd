//! A text of the configuration with its line and column, for error messages.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{Location, Spanned};

/// A text with its line and column. Only texts are compared, so a line that was inserted above is no change.
#[derive(Debug, Clone, Eq)]
pub(crate) struct Located {
    pub(crate) value: String,
    /// Line and column, if known.
    pub(crate) at: Option<(u64, u64)>,
}

impl PartialEq for Located {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Line and column, if known.
pub(super) fn line_and_column(location: Location) -> Option<(u64, u64)> {
    (location != Location::UNKNOWN).then(|| (location.line(), location.column()))
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self { value, at: line_and_column(referenced) })
    }
}

impl Serialize for Located {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl JsonSchema for Located {
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
