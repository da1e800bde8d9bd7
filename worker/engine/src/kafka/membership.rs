//! Whether, and in which generation, a consumer is a member of its group.

use super::ffi::{Functions, GroupMetadata};

/// A consumer's place in its group.
pub struct Membership {
    pub(super) functions: &'static Functions,
    pub(super) metadata: *mut GroupMetadata,
}

// SAFETY: it is a value that nobody changes.
unsafe impl Send for Membership {}

impl Membership {
    /// The generation of its group, with the newer protocol its own epoch; below 0: it is in none.
    pub fn generation(&self) -> i32 {
        if self.metadata.is_null() {
            return -1;
        }
        // SAFETY: only asks.
        unsafe { (self.functions.consumer_group_metadata_generation_id)(self.metadata) }
    }

    /// Whether it is a member, and has not begun to leave.
    pub fn is_member(&self) -> bool {
        // SAFETY: what it gives lives as long as the metadata.
        !self.metadata.is_null()
            && unsafe {
                let member_id = (self.functions.consumer_group_metadata_member_id)(self.metadata);
                !member_id.is_null() && *member_id != 0
            }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.metadata.is_null() {
            // SAFETY: made by `Client::membership` and destroyed nowhere else.
            unsafe { (self.functions.consumer_group_metadata_destroy)(self.metadata) }
        }
    }
}
