//! Whether a consumer is a member of its group, and in which generation.

use super::ffi::{Functions, GroupMetadata};

/// The membership of a consumer in its group.
pub struct Membership {
    pub(super) functions: &'static Functions,
    pub(super) metadata: *mut GroupMetadata,
}

// SAFETY: nothing changes the metadata.
unsafe impl Send for Membership {}

impl Membership {
    /// Returns the generation of the group or, with the protocol `Consumer`, the epoch of the member. Below 0 if the consumer is not a
    /// member.
    pub fn generation(&self) -> i32 {
        if self.metadata.is_null() {
            return -1;
        }
        // SAFETY: the call only reads.
        unsafe { (self.functions.consumer_group_metadata_generation_id)(self.metadata) }
    }

    /// Returns whether the consumer is a member that has not begun to leave.
    pub fn is_member(&self) -> bool {
        // SAFETY: the member id lives as long as the metadata.
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
            // SAFETY: `Client::membership` created the metadata, and it is destroyed nowhere else.
            unsafe { (self.functions.consumer_group_metadata_destroy)(self.metadata) }
        }
    }
}
