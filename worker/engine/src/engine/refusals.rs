//! What the errors of a transaction's copies mean.

use crate::kafka::{code, Error};

/// A newer producer has the same transactional id.
pub const FENCED: [i32; 3] = [code::FENCED, code::PRODUCER_FENCED, code::INVALID_PRODUCER_EPOCH];
/// These errors say that the transaction has already failed, or has failed because of another copy. They do not say why.
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
/// A partition could not be added to the transaction. The error does not say which one.
pub const NOT_ADDED: [i32; 3] =
    [code::TOPIC_AUTHORIZATION_FAILED, code::OPERATION_NOT_ATTEMPTED, code::UNKNOWN_TOPIC_OR_PART];

/// Whether an error says what is wrong with its copy, and not only that the transaction has failed.
#[must_use]
pub fn is_of_the_copy(error: &Error) -> bool {
    !error.fatal && !NOT_OF_A_COPY.contains(&error.code)
}

/// Whether an error says why its transaction has failed, whether it concerns the copy or all that this producer sends.
#[must_use]
pub fn says_why(error: &Error) -> bool {
    error.fatal || FENCED.contains(&error.code) || is_of_the_copy(error)
}
