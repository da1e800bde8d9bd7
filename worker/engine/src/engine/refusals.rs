//! What Kafka's refusals of the copies of a transaction mean.

use crate::kafka::{code, Error};

/// There is a newer producer of the id.
pub const FENCED: [i32; 3] = [code::FENCED, code::PRODUCER_FENCED, code::INVALID_PRODUCER_EPOCH];
/// These say that the transaction has failed already, or by another copy, not why.
const NOT_OF_A_COPY: [i32; 10] = [
    code::FENCED,
    code::PRODUCER_FENCED,
    code::INVALID_PRODUCER_EPOCH,
    code::STATE,
    code::PURGE_QUEUE,
    code::PURGE_INFLIGHT,
    code::FATAL,
    code::INVALID_TXN_STATE,
    code::INVALID_PRODUCER_ID_MAPPING,
    code::INVALID_DIFFERENT_RECORD,
];
/// A partition could not become part of the transaction; which one isn't told.
pub const NOT_ADDED: [i32; 3] =
    [code::TOPIC_AUTHORIZATION_FAILED, code::OPERATION_NOT_ATTEMPTED, code::UNKNOWN_TOPIC_OR_PART];

/// Whether a refusal says what is wrong with its copy, and not only that the transaction has failed.
#[must_use]
pub fn is_of_the_copy(error: &Error) -> bool {
    !error.fatal && !NOT_OF_A_COPY.contains(&error.code)
}

/// Whether a refusal says why its transaction has failed, be it of the copy or of all that this producer sends.
#[must_use]
pub fn says_why(error: &Error) -> bool {
    error.fatal || FENCED.contains(&error.code) || is_of_the_copy(error)
}
