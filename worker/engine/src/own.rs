//! The headers that this project defines. All other headers of a record are foreign, and are copied unchanged.

/// A header that this project defines. Those that a client may set come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // docs/headers.md explains each of them
pub enum Own {
    Id,
    Attempt,
    Group,
    DeliverAt,
    DelayLevel,
    Target,
    Generation,
    CreatedAt,
    DoneAt,
    Error,
    Root,
    Origin,
    DueAt,
    Released,
    Hops,
    Reason,
    AppendedAt,
}

impl Own {
    /// The number of these headers.
    pub const COUNT: usize = 17;

    /// Returns the header with this name, or `None` if the name is that of a foreign header.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Option<Own> {
        Some(match name.strip_prefix(b"dt-")? {
            b"id" => Own::Id,
            b"attempt" => Own::Attempt,
            b"group" => Own::Group,
            b"deliver-at" => Own::DeliverAt,
            b"delay-level" => Own::DelayLevel,
            b"target" => Own::Target,
            b"generation" => Own::Generation,
            b"created-at" => Own::CreatedAt,
            b"done-at" => Own::DoneAt,
            b"error" => Own::Error,
            b"root" => Own::Root,
            b"origin" => Own::Origin,
            b"due-at" => Own::DueAt,
            b"released" => Own::Released,
            b"hops" => Own::Hops,
            b"reason" => Own::Reason,
            b"appended-at" => Own::AppendedAt,
            _ => return None,
        })
    }

    /// Returns the name of the header in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Own::Id => "dt-id",
            Own::Attempt => "dt-attempt",
            Own::Group => "dt-group",
            Own::DeliverAt => "dt-deliver-at",
            Own::DelayLevel => "dt-delay-level",
            Own::Target => "dt-target",
            Own::Generation => "dt-generation",
            Own::CreatedAt => "dt-created-at",
            Own::DoneAt => "dt-done-at",
            Own::Error => "dt-error",
            Own::Root => "dt-root",
            Own::Origin => "dt-origin",
            Own::DueAt => "dt-due-at",
            Own::Released => "dt-released",
            Own::Hops => "dt-hops",
            Own::Reason => "dt-reason",
            Own::AppendedAt => "dt-appended-at",
        }
    }

    /// Returns whether a client may set the header. The others are accepted from workers only.
    #[must_use]
    pub const fn is_clients(self) -> bool {
        self as usize <= Own::Error as usize
    }
}
