//! The names of our own headers. Whatever else a record carries is foreign, and passes unchanged.

/// One of our own headers. First those that a client may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // docs/headers.md says what each is for
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
    /// How many there are.
    pub const COUNT: usize = 17;

    /// The header of this name; `None`: it is foreign.
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

    /// As it stands in a record.
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

    /// Whether a client may say it; the others are believed of workers only.
    #[must_use]
    pub const fn is_clients(self) -> bool {
        self as usize <= Own::Error as usize
    }
}
