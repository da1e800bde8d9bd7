//! Topics, as a client knows them.

use std::ffi::CString;
use std::ptr;

use super::client::Client;
use super::error::Error;
use super::ffi::{Functions, Topic};

/// A topic. It keeps its client alive no longer than that lives.
pub struct TopicHandle {
    functions: &'static Functions,
    pub(super) pointer: *mut Topic,
}

// SAFETY: librdkafka's topics may be used by any thread.
unsafe impl Send for TopicHandle {}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: made by `Client::topic`, and destroyed nowhere else.
        unsafe { (self.functions.topic_destroy)(self.pointer) }
    }
}

impl Client {
    /// A topic, to produce to or to ask about.
    ///
    /// # Errors
    /// No topic can have that name.
    pub fn topic(&self, name: &str) -> Result<TopicHandle, Error> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the name is copied.
        let pointer = unsafe { (self.functions.topic_new)(self.handle, name.as_ptr(), ptr::null_mut()) };
        if pointer.is_null() {
            // SAFETY: only asks.
            return Err(Error::of(self.functions, unsafe { (self.functions.last_error)() }));
        }
        Ok(TopicHandle { functions: self.functions, pointer })
    }

    /// Looks at the partitions of all topics that it has to do with now, instead of within the client's interval. Waits for it.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time.
    pub fn look_at_topics(&self, timeout_ms: i32) -> Result<(), Error> {
        self.look_at(ptr::null_mut(), timeout_ms)
    }

    fn look_at(&self, topic: *mut Topic, timeout_ms: i32) -> Result<(), Error> {
        let mut answer = ptr::null();
        // SAFETY: what the call gives is given back right away; the topic, if there is one, is this client's.
        let code = unsafe {
            let code = (self.functions.metadata)(self.handle, 0, topic, &mut answer, timeout_ms);
            if !answer.is_null() {
                (self.functions.metadata_destroy)(answer);
            }
            code
        };
        Error::check(self.functions, code)
    }

    /// As `look_at_topics`, at one topic.
    ///
    /// # Errors
    /// Kafka's, or there was no answer in time; or no topic can have that name.
    pub fn look_at_topic(&self, name: &str, timeout_ms: i32) -> Result<(), Error> {
        let topic = self.topic(name)?;
        self.look_at(topic.pointer, timeout_ms)
    }
}
