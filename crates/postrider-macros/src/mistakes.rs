//! Compile errors, gathered so that one build shows them all.

use syn::{Error, Result};

#[derive(Default)]
pub(crate) struct Mistakes(Option<Error>);

impl Mistakes {
    pub(crate) fn add(&mut self, mistake: Error) {
        match &mut self.0 {
            Some(first) => first.combine(mistake),
            None => self.0 = Some(mistake),
        }
    }

    pub(crate) fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|mistake| self.add(mistake)).ok()
    }

    pub(crate) fn into_result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
