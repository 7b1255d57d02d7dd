//! The sink conformance suite on a real Redis.

mod support;

postrider_testkit::sink_conformance!(super::support::RedisHarness);
