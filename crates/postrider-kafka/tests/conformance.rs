//! The sink conformance suite on a real Kafka.

mod support;

postrider_testkit::sink_conformance!(super::support::KafkaHarness);
