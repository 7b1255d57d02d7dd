//! Turns Kafka's reports into outcomes.

use postrider_core::Outcome;
use rdkafka::types::RDKafkaErrorCode as Code;

/// What a report says about a record.
#[derive(Debug, Clone)]
pub(crate) enum RecordResult {
    /// The outcome of the record.
    Known(Outcome),
    /// Something in the record's request was refused for good. A request holds many records; only sending this one alone shows whether it
    /// was the reason.
    Suspected(String),
    /// The producer ended before an answer.
    Lost,
}

/// Interprets the report of a record.
pub(crate) fn of_report(report: Result<(), Code>) -> RecordResult {
    let Err(code) = report else { return RecordResult::Known(Outcome::Delivered) };
    let text = format!("Kafka: {code}");
    match code {
        Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::Inconsistent => RecordResult::Lost,
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation => RecordResult::Suspected(text),
        code if is_outage(code) => RecordResult::Known(Outcome::unavailable(text)),
        Code::MessageTimedOut | Code::RequestTimedOut => RecordResult::Known(Outcome::unknown(text)),
        _ => RecordResult::Known(Outcome::retry(text)),
    }
}

/// Interprets the error with which librdkafka did not accept a record.
pub(crate) fn of_refusal(code: Code) -> RecordResult {
    match code {
        // The limit of the producer itself, and only this record exceeds it.
        Code::MessageSizeTooLarge => RecordResult::Known(Outcome::rejected(format!(
            "Kafka: {code}: it is larger than the property message.max.bytes"
        ))),
        Code::Fatal | Code::QueueFull => RecordResult::Lost,
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
