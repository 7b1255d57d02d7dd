//! What Kafka answered as an outcome.

use postrider_core::Outcome;
use rdkafka::types::RDKafkaErrorCode as Code;

/// What became of one record.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// This is what is said of it.
    Told(Outcome),
    /// Something in the request that it was in was refused for good. A request holds many records; whether it was this one, only
    /// sending it alone will tell.
    Suspected(String),
    /// Its producer ended before there was an answer.
    Lost,
}

/// What a report says of a record.
pub(crate) fn of_report(report: Result<(), Code>) -> Fate {
    let Err(code) = report else { return Fate::Told(Outcome::Delivered) };
    let text = format!("Kafka: {code}");
    match code {
        Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::Inconsistent => Fate::Lost,
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation => Fate::Suspected(text),
        code if is_outage(code) => Fate::Told(Outcome::unavailable(text)),
        Code::MessageTimedOut | Code::RequestTimedOut => Fate::Told(Outcome::unknown(text)),
        _ => Fate::Told(Outcome::retry(text)),
    }
}

/// What librdkafka said when a record was handed to it, and it did not take it.
pub(crate) fn of_refusal(code: Code) -> Fate {
    match code {
        // It knows its own limit, and this record alone breaks it.
        Code::MessageSizeTooLarge => Fate::Told(Outcome::rejected(format!(
            "Kafka: {code}: it is larger than the property message.max.bytes"
        ))),
        Code::Fatal | Code::QueueFull => Fate::Lost,
        code => of_report(Err(code)),
    }
}

/// Something to put right, after which the same record is taken.
fn is_outage(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopic
            | Code::UnknownPartition
            | Code::UnknownTopicOrPartition
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::Authentication
            | Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
    )
}
