//! What is left of the limits of a claim.

/// What is left of the limits of a claim.
#[derive(Debug, Clone)]
pub struct Budget {
    events: usize,
    bytes: usize,
    is_whole: bool,
}

impl Budget {
    /// Room for so many events of so many bytes together.
    pub fn new(events: usize, bytes: usize) -> Self {
        Self { events, bytes, is_whole: true }
    }

    /// How many more events fit.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Whether an event of this size fits. The first one always does, or a large event would never come.
    pub fn fits(&self, bytes: usize) -> bool {
        self.events > 0 && (self.is_whole || bytes <= self.bytes)
    }

    /// Takes an event of this size out of the budget.
    pub fn take(&mut self, bytes: usize) {
        self.events = self.events.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_whole = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_fits_whatever_its_size_and_no_other() {
        let mut budget = Budget::new(40, 10);
        assert!(budget.fits(100));
        budget.take(100);
        assert!(!budget.fits(1));
        assert!(!Budget::new(0, 250).fits(1));
    }
}
