//! The sink conformance suite on a real RabbitMQ.

mod support;

postrider_testkit::sink_conformance!(super::support::RabbitHarness);
