//! Topics as a client knows them.

use std::ffi::CString;
use std::ptr;

use super::client::Client;
use super::error::Error;
use super::ffi::{Functions, Topic};

/// A topic of a client. It does not keep the client alive, and has to be dropped before it.
pub struct TopicHandle {
    functions: &'static Functions,
    pub(super) pointer: *mut Topic,
}

// SAFETY: librdkafka's topics may be used by any thread.
unsafe impl Send for TopicHandle {}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: `Client::topic` created the topic, and it is destroyed nowhere else.
        unsafe { (self.functions.topic_destroy)(self.pointer) }
    }
}

impl Client {
    /// Returns a topic, to produce to it or to request its metadata.
    ///
    /// # Errors
    /// No topic can have this name.
    pub fn topic(&self, name: &str) -> Result<TopicHandle, Error> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the call copies the name.
        let pointer = unsafe { (self.functions.topic_new)(self.handle, name.as_ptr(), ptr::null_mut()) };
        if pointer.is_null() {
            // SAFETY: the call only reads.
            return Err(Error::of(self.functions, unsafe { (self.functions.last_error)() }));
        }
        Ok(TopicHandle { functions: self.functions, pointer })
    }

    /// Requests the metadata of all topics that the client uses now, instead of at its next interval, and waits for the answer.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time.
    pub fn look_at_topics(&self, timeout_ms: i32) -> Result<(), Error> {
        self.look_at(ptr::null_mut(), timeout_ms)
    }

    fn look_at(&self, topic: *mut Topic, timeout_ms: i32) -> Result<(), Error> {
        let mut answer = ptr::null();
        // SAFETY: the result of the call is destroyed right away. The topic, if there is one, is this client's.
        let code = unsafe {
            let code = (self.functions.metadata)(self.handle, 0, topic, &mut answer, timeout_ms);
            if !answer.is_null() {
                (self.functions.metadata_destroy)(answer);
            }
            code
        };
        Error::check(self.functions, code)
    }

    /// Does the same as `look_at_topics`, but for one topic.
    ///
    /// # Errors
    /// Kafka refused the request, or did not answer in time, or no topic can have this name.
    pub fn look_at_topic(&self, name: &str, timeout_ms: i32) -> Result<(), Error> {
        let topic = self.topic(name)?;
        self.look_at(topic.pointer, timeout_ms)
    }
}
