//! The protections that an experiment leaves out of a whole replica, to measure what they cost and catch.

use crosscheck::{Mode, message};

use super::TableReader;
use super::parse::read_either;

/// What is left out; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// No request keeps the before-images of what it changes: one that panics or must run again leaves its changes.
    pub before_images: bool,
    /// With X: a reply is sent at once and compared afterwards, so that clients can get wrong replies.
    pub reply_gate: bool,
}

impl LeftOut {
    /// Reads the fields of a file with this mode.
    pub(super) fn read(reader: &mut TableReader<'_>, mode: Mode) -> LeftOut {
        let before_images = read_either(reader, "before_images", "none", "kept").unwrap_or_default();
        let reply_gate = read_either(reader, "replies", "free", "held").unwrap_or_default();
        if mode.twice && before_images {
            let what = format!("mode {mode} undoes the first run of each request, which needs before-images");
            reader.report(reader.offset("before_images"), "before_images", &what, "write \"kept\"");
        }
        LeftOut { before_images, reply_gate }
    }

    /// Appends the fields of what is left out: a file without them is one that the product reads too.
    pub(super) fn write(self, text: &mut String) {
        if self.before_images {
            text.push_str("before_images = \"none\"\n");
        }
        if self.reply_gate {
            text.push_str("replies = \"free\"\n");
        }
    }

    /// What must be equal on all replicas.
    pub(super) fn equal_settings(self) -> Option<(String, String)> {
        self.before_images.then(|| ("before_images".to_owned(), "none".to_owned()))
    }

    /// Leaves it out of this process, before its first request.
    pub fn apply(self) {
        if self.before_images {
            crosscheck::object::exempt::without_before_images();
            message(format_args!("no before-images are kept"));
        }
        if self.reply_gate {
            crosscheck::without_reply_gate();
            message(format_args!("replies leave before they are compared"));
        }
    }
}
