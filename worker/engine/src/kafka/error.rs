//! Errors of Kafka and of librdkafka.

use std::fmt::{self, Display, Formatter};

use super::ffi::{self, text, Code, Functions, KafkaError};

/// The error codes that the engine distinguishes. Those below 0 are librdkafka's own.
pub mod code {
    #![allow(missing_docs)]
    pub const QUEUE_FULL: i32 = -184;
    pub const BAD_MSG: i32 = -199;
    pub const BAD_COMPRESSION: i32 = -198;
    pub const NOT_IMPLEMENTED: i32 = -170;
    pub const INVALID_MSG: i32 = 2;
    pub const PARTITION_EOF: i32 = -191;
    pub const FATAL: i32 = -150;
    pub const AUTO_OFFSET_RESET: i32 = -140;
    pub const LOG_TRUNCATION: i32 = -139;
    /// The record was refused only because another record of its batch is invalid.
    pub const INVALID_DIFFERENT_RECORD: i32 = -138;
    pub const STATE: i32 = -172;
    pub const NO_ENTRY: i32 = -156;
    pub const PURGE_QUEUE: i32 = -152;
    pub const PURGE_INFLIGHT: i32 = -151;
    pub const FENCED: i32 = -144;
    pub const TIMED_OUT: i32 = -185;
    pub const ASSIGN_PARTITIONS: i32 = -175;
    pub const UNKNOWN_PARTITION: i32 = -190;
    pub const MSG_SIZE_TOO_LARGE: i32 = 10;
    pub const INVALID_MSG_SIZE: i32 = 4;
    pub const RECORD_LIST_TOO_LARGE: i32 = 18;
    pub const TOPIC_AUTHORIZATION_FAILED: i32 = 29;
    pub const UNKNOWN_TOPIC_OR_PART: i32 = 3;
    pub const OFFSET_METADATA_TOO_LARGE: i32 = 12;
    pub const INVALID_COMMIT_OFFSET_SIZE: i32 = 28;
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i32 = 45;
    pub const INVALID_PRODUCER_EPOCH: i32 = 47;
    pub const INVALID_TXN_STATE: i32 = 48;
    pub const INVALID_PRODUCER_ID_MAPPING: i32 = 49;
    pub const OPERATION_NOT_ATTEMPTED: i32 = 55;
    pub const UNKNOWN_PRODUCER_ID: i32 = 59;
    pub const INVALID_RECORD: i32 = 87;
    pub const PRODUCER_FENCED: i32 = 90;
}

/// An error of Kafka or of librdkafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// See `code`.
    pub code: i32,
    /// The name of the code, as in librdkafka without the prefix: `TOPIC_AUTHORIZATION_FAILED`.
    pub name: String,
    /// The message for people.
    pub text: String,
    /// Whether the client cannot continue.
    pub fatal: bool,
    /// Whether the same call may succeed later.
    pub retriable: bool,
    /// Whether the transaction has to be aborted.
    pub aborts_transaction: bool,
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.text)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Creates an error of which only the code is known.
    pub(super) fn of(functions: &Functions, code: Code) -> Self {
        // SAFETY: for any code, both calls return strings that live as long as the library.
        let (name, message) = unsafe { (text((functions.err2name)(code)), text((functions.err2str)(code))) };
        Error { code, name, text: message, fatal: false, retriable: false, aborts_transaction: false }
    }

    /// Creates an error of the engine itself.
    #[must_use]
    pub fn local(code: Code, text: &str) -> Self {
        let name = "LOCAL".to_owned();
        Error { code, name, text: text.to_owned(), fatal: false, retriable: false, aborts_transaction: false }
    }

    /// Returns `Ok` for `NO_ERROR`, and an error for any other code.
    pub(super) fn check(functions: &Functions, code: Code) -> Result<(), Self> {
        if code == ffi::NO_ERROR {
            Ok(())
        } else {
            Err(Self::of(functions, code))
        }
    }

    /// Takes the error object that newer functions of librdkafka return. Returns `Ok` for null.
    ///
    /// # Safety
    /// `error` comes from such a function, and nothing else uses it.
    pub(super) unsafe fn take(functions: &Functions, error: *mut KafkaError) -> Result<(), Self> {
        if error.is_null() {
            return Ok(());
        }
        let mut taken = Self::of(functions, (functions.error_code)(error));
        taken.text = text((functions.error_string)(error));
        taken.fatal = (functions.error_is_fatal)(error) != 0;
        taken.retriable = (functions.error_is_retriable)(error) != 0;
        taken.aborts_transaction = (functions.error_txn_requires_abort)(error) != 0;
        (functions.error_destroy)(error);
        Err(taken)
    }
}
