//! Turns Kafka's reports into outcomes.

use postrider_core::Outcome;
use rdkafka::types::RDKafkaErrorCode as Code;

/// What a report says about a record.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// The outcome of the record.
    Told(Outcome),
    /// Something in the record's request was refused for good. A request holds many records; only sending this one alone shows whether it
    /// was the reason.
    Suspected(String),
    /// The producer ended before an answer.
    Lost,
}

/// Interprets the report of a record.
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

/// Interprets the error with which librdkafka did not accept a record.
pub(crate) fn of_refusal(code: Code) -> Fate {
    match code {
        // The limit of the producer itself, and only this record exceeds it.
        Code::MessageSizeTooLarge => Fate::Told(Outcome::rejected(format!(
            "Kafka: {code}: it is larger than the property message.max.bytes"
        ))),
        Code::Fatal | Code::QueueFull => Fate::Lost,
        code => of_report(Err(code)),
    }
}

/// Whether an operator can fix the cause, after which the same record is accepted.
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
