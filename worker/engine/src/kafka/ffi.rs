//! The part of librdkafka's C interface that the engine calls, as `rdkafka.h` declares it.
//!
//! The library is the one in the Python package confluent-kafka. It is loaded at run time, so that nothing of it is built or linked, and
//! an upgrade of the package also upgrades the library of the engine. The declarations are part of librdkafka's stable interface.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::OnceLock;

/// An error code of Kafka or, below 0, of the client.
pub type Code = c_int;

pub const NO_ERROR: Code = 0;
pub const PRODUCER: c_int = 0;
pub const CONSUMER: c_int = 1;

pub const EVENT_DELIVERY: c_int = 0x1;
pub const EVENT_FETCH: c_int = 0x2;
pub const EVENT_LOG: c_int = 0x4;
pub const EVENT_ERROR: c_int = 0x8;
pub const EVENT_REBALANCE: c_int = 0x10;
pub const EVENT_COMMIT: c_int = 0x20;
pub const EVENT_STATISTICS: c_int = 0x40;

pub const TIMESTAMP_LOG_APPEND_TIME: c_int = 2;

pub const MSG_COPY: c_int = 0x2;
pub const PURGE_ALL_WITHOUT_WAITING: c_int = 0x1 | 0x2 | 0x4;
pub const DESTROY_NO_CONSUMER_CLOSE: c_int = 0x8;

/// Kinds of arguments of `rd_kafka_produceva`.
pub mod argument {
    use std::ffi::c_int;
    pub const TOPIC_HANDLE: c_int = 2;
    pub const PARTITION: c_int = 3;
    pub const VALUE: c_int = 4;
    pub const KEY: c_int = 5;
    pub const OPAQUE: c_int = 6;
    pub const FLAGS: c_int = 7;
    pub const TIMESTAMP: c_int = 8;
    pub const HEADERS: c_int = 10;
}

macro_rules! opaque {
    ($($name:ident),*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
}
opaque!(Handle, Conf, Topic, Queue, Event, Headers, KafkaError, GroupMetadata, TopicConf);

#[repr(C)]
pub struct Message {
    pub err: Code,
    pub topic: *mut Topic,
    pub partition: i32,
    pub payload: *mut c_void,
    pub len: usize,
    pub key: *mut c_void,
    pub key_len: usize,
    pub offset: i64,
    pub opaque: *mut c_void,
}

#[repr(C)]
pub struct TopicPartition {
    pub topic: *mut c_char,
    pub partition: i32,
    pub offset: i64,
    pub metadata: *mut c_void,
    pub metadata_size: usize,
    pub opaque: *mut c_void,
    pub err: Code,
    pub private: *mut c_void,
}

#[repr(C)]
pub struct TopicPartitionList {
    pub count: c_int,
    pub size: c_int,
    pub elements: *mut TopicPartition,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub pointer: *const c_void,
    pub size: usize,
}

#[repr(C)]
pub union Value {
    pub topic: *mut Topic,
    pub int: c_int,
    pub int32: i32,
    pub int64: i64,
    pub bytes: Bytes,
    pub headers: *mut Headers,
    pub pointer: *mut c_void,
    pub padding: [u8; 64],
}

/// An argument of `rd_kafka_produceva`.
#[repr(C)]
pub struct Argument {
    pub kind: c_int,
    pub value: Value,
}

macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        /// The functions of librdkafka. Their names lack the prefix `rd_kafka_`.
        #[allow(non_snake_case)]
        pub struct Functions { $($(#[$doc])* pub $name: unsafe extern "C" fn($($argument: $kind),*) $(-> $answer)?,)* }

        impl Functions {
            unsafe fn of(library: *mut c_void) -> Result<Self, String> {
                Ok(Functions { $($name: {
                    let name = concat!("rd_kafka_", stringify!($name), "\0");
                    // SAFETY: the name ends with 0, and the function has the type that rdkafka.h declares.
                    let found = libc::dlsym(library, name.as_ptr().cast());
                    if found.is_null() {
                        return Err(format!("it lacks the function {}", name.trim_end_matches('\0')));
                    }
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument: $kind),*) $(-> $answer)?>(found)
                },)* })
            }
        }
    };
}

functions! {
    fn err2name(code: Code) -> *const c_char;
    fn err2str(code: Code) -> *const c_char;

    fn conf_new() -> *mut Conf;
    fn conf_destroy(conf: *mut Conf);
    fn conf_set(conf: *mut Conf, name: *const c_char, value: *const c_char, error: *mut c_char, size: usize) -> c_int;
    fn conf_set_events(conf: *mut Conf, events: c_int);

    fn new(kind: c_int, conf: *mut Conf, error: *mut c_char, size: usize) -> *mut Handle;
    fn destroy_flags(handle: *mut Handle, flags: c_int);
    fn last_error() -> Code;
    fn set_log_queue(handle: *mut Handle, queue: *mut Queue) -> Code;

    fn queue_get_consumer(handle: *mut Handle) -> *mut Queue;
    fn queue_get_main(handle: *mut Handle) -> *mut Queue;
    fn queue_destroy(queue: *mut Queue);
    fn queue_poll(queue: *mut Queue, timeout_ms: c_int) -> *mut Event;
    fn queue_io_event_enable(queue: *mut Queue, fd: c_int, payload: *const c_void, size: usize);
    fn poll_set_consumer(handle: *mut Handle) -> Code;

    fn event_type(event: *const Event) -> c_int;
    fn event_destroy(event: *mut Event);
    fn event_message_next(event: *mut Event) -> *const Message;
    fn event_error(event: *mut Event) -> Code;
    fn event_error_string(event: *mut Event) -> *const c_char;
    fn event_error_is_fatal(event: *mut Event) -> c_int;
    fn event_stats(event: *mut Event) -> *const c_char;
    fn event_log(event: *mut Event, facility: *mut *const c_char, text: *mut *const c_char, level: *mut c_int) -> c_int;
    fn event_topic_partition(event: *mut Event) -> *mut TopicPartition;
    fn event_topic_partition_list(event: *mut Event) -> *mut TopicPartitionList;

    fn topic_partition_destroy(partition: *mut TopicPartition);
    fn topic_partition_list_new(size: c_int) -> *mut TopicPartitionList;
    fn topic_partition_list_destroy(list: *mut TopicPartitionList);
    fn topic_partition_list_add(
        list: *mut TopicPartitionList,
        topic: *const c_char,
        partition: i32,
    ) -> *mut TopicPartition;

    fn message_timestamp(message: *const Message, kind: *mut c_int) -> i64;
    fn message_headers(message: *const Message, headers: *mut *mut Headers) -> Code;
    fn headers_new(count: usize) -> *mut Headers;
    fn headers_destroy(headers: *mut Headers);
    fn header_cnt(headers: *const Headers) -> usize;
    fn header_add(
        headers: *mut Headers,
        name: *const c_char,
        name_size: isize,
        value: *const c_void,
        value_size: isize,
    ) -> Code;
    fn header_get_all(
        headers: *const Headers,
        index: usize,
        name: *mut *const c_char,
        value: *mut *const c_void,
        size: *mut usize,
    ) -> Code;

    fn subscribe(handle: *mut Handle, topics: *const TopicPartitionList) -> Code;
    fn unsubscribe(handle: *mut Handle) -> Code;
    fn assign(handle: *mut Handle, partitions: *const TopicPartitionList) -> Code;
    fn incremental_assign(handle: *mut Handle, partitions: *const TopicPartitionList) -> *mut KafkaError;
    fn incremental_unassign(handle: *mut Handle, partitions: *const TopicPartitionList) -> *mut KafkaError;
    fn rebalance_protocol(handle: *mut Handle) -> *const c_char;
    fn assignment_lost(handle: *mut Handle) -> c_int;
    fn pause_partitions(handle: *mut Handle, partitions: *mut TopicPartitionList) -> Code;
    fn resume_partitions(handle: *mut Handle, partitions: *mut TopicPartitionList) -> Code;
    fn seek_partitions(handle: *mut Handle, partitions: *mut TopicPartitionList, timeout_ms: c_int) -> *mut KafkaError;
    fn commit_queue(
        handle: *mut Handle,
        offsets: *const TopicPartitionList,
        queue: *mut Queue,
        callback: *const c_void,
        opaque: *mut c_void,
    ) -> Code;
    fn committed(handle: *mut Handle, partitions: *mut TopicPartitionList, timeout_ms: c_int) -> Code;
    fn ListOffsets(handle: *mut Handle, partitions: *mut TopicPartitionList, options: *const c_void, queue: *mut Queue);
    fn get_watermark_offsets(
        handle: *mut Handle,
        topic: *const c_char,
        partition: i32,
        low: *mut i64,
        high: *mut i64,
    ) -> Code;
    fn consumer_close_queue(handle: *mut Handle, queue: *mut Queue) -> *mut KafkaError;
    fn consumer_closed(handle: *mut Handle) -> c_int;
    fn consumer_group_metadata(handle: *mut Handle) -> *mut GroupMetadata;
    fn consumer_group_metadata_destroy(metadata: *mut GroupMetadata);
    fn consumer_group_metadata_generation_id(metadata: *const GroupMetadata) -> i32;
    fn consumer_group_metadata_member_id(metadata: *const GroupMetadata) -> *const c_char;

    fn topic_new(handle: *mut Handle, name: *const c_char, conf: *mut TopicConf) -> *mut Topic;
    fn topic_destroy(topic: *mut Topic);
    fn topic_name(topic: *const Topic) -> *const c_char;
    fn produceva(handle: *mut Handle, arguments: *const Argument, count: usize) -> *mut KafkaError;
    fn outq_len(handle: *mut Handle) -> c_int;
    fn purge(handle: *mut Handle, flags: c_int) -> Code;
    fn metadata(
        handle: *mut Handle,
        all: c_int,
        topic: *mut Topic,
        answer: *mut *const c_void,
        timeout_ms: c_int,
    ) -> Code;
    fn metadata_destroy(metadata: *const c_void);

    fn init_transactions(handle: *mut Handle, timeout_ms: c_int) -> *mut KafkaError;
    fn begin_transaction(handle: *mut Handle) -> *mut KafkaError;
    fn send_offsets_to_transaction(
        handle: *mut Handle,
        offsets: *const TopicPartitionList,
        group: *const GroupMetadata,
        timeout_ms: c_int,
    ) -> *mut KafkaError;
    fn commit_transaction(handle: *mut Handle, timeout_ms: c_int) -> *mut KafkaError;
    fn abort_transaction(handle: *mut Handle, timeout_ms: c_int) -> *mut KafkaError;

    fn error_code(error: *const KafkaError) -> Code;
    fn error_string(error: *const KafkaError) -> *const c_char;
    fn error_is_fatal(error: *const KafkaError) -> c_int;
    fn error_is_retriable(error: *const KafkaError) -> c_int;
    fn error_txn_requires_abort(error: *const KafkaError) -> c_int;
    fn error_destroy(error: *mut KafkaError);
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The library, once it is loaded.
#[derive(Clone, Copy)]
pub struct Load(pub(super) &'static Functions);

/// Loads the library at `path`, or returns the one that was loaded before.
///
/// # Errors
/// There is no library at `path`, or it lacks a function, because it is older than 2.0.
pub fn load(path: &str) -> Result<Load, String> {
    if let Some(found) = FUNCTIONS.get() {
        return Ok(Load(found));
    }
    let name = CString::new(path).map_err(|e| e.to_string())?;
    // SAFETY: the process has loaded this shared library already, with confluent_kafka, and never closes it.
    let found = unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return Err(format!("could not load {path}: {}", text(libc::dlerror())));
        }
        Functions::of(library).map_err(|why| format!("{path} is not a suitable librdkafka: {why}"))?
    };
    let load = Load(FUNCTIONS.get_or_init(|| found));
    disable_fast_bins();
    Ok(load)
}

/// Disables glibc's fast bins. The library makes some ten small allocations for each record and frees them by the thousand. With fast
/// bins, glibc merges the freed chunks again and again, which takes a sixth of the time of the engine's thread.
fn disable_fast_bins() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call sets a parameter of the allocator, which is allowed at any time.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Copies a string of the library. Returns an empty string for null.
///
/// # Safety
/// The pointer is null, or the string ends with 0.
pub unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    CStr::from_ptr(pointer).to_string_lossy().into_owned()
}
