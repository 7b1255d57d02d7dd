//! Programs that show Postrider at work.
