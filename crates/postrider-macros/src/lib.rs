//! Derives for Postrider's event and aggregate types.
