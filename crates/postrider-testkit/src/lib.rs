//! Conformance suites, simulator and test parts for Postrider.
