//! The sink conformance suite on a real NATS.

mod support;

postrider_testkit::sink_conformance!(super::support::NatsHarness);
