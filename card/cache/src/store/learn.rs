//! Learning from the server's own replies how it says the same in another form (304, 206).

use nicache_http::{
    ByteRange, HeadTemplate, PartFormat, PartialTemplate, PartsAsked, ReplyHead, without_own_fields,
};

use super::entry::EntryId;
use super::index::Store;
use super::learned::{LearnedParts, Validators};

/// A request for an entry in a form that the card has not seen the server's reply in.
#[derive(Clone, Copy, Debug)]
pub struct Lesson {
    /// The entry.
    pub entry: EntryId,
    /// In which form it was asked for.
    pub form: LessonForm,
}

/// A form of a reply.
#[derive(Clone, Copy, Debug)]
pub enum LessonForm {
    /// 304, asked for by these.
    NotModified(Validators),
    /// 206 with this range.
    Range(ByteRange),
    /// 206 with several ranges.
    Parts(PartsAsked),
}

impl Store {
    /// The server's reply has come: its head, and what of its body has come with it. Nothing is
    /// learned from one that is not of the entry's version, or in which the server says otherwise
    /// than usual whether the connection goes on; `last`: the request wants it closed.
    pub fn learn(
        &mut self,
        lesson: Lesson,
        reply: &ReplyHead<'_>,
        head: &[u8],
        body: &[u8],
        last: bool,
    ) {
        let Some(entry) = self.get(lesson.entry) else { return };
        let without_own = without_own_fields(reply, head);
        let head = without_own.as_deref().unwrap_or(head);
        let is_of_entry = (reply.etag.is_none() || reply.etag == entry.etag.as_deref())
            && (reply.last_modified.is_none()
                || reply.last_modified == entry.last_modified.as_deref());
        if !is_of_entry || reply.keep_alive == last {
            return;
        }
        let (len, is_pinned) = (entry.body_len, !entry.template.moves_expires());
        let pinned =
            |template: PartialTemplate| if is_pinned { template.pinned() } else { template };
        let Some(learned) = self.get_mut(lesson.entry).map(|entry| &mut entry.learned) else {
            return;
        };
        // What was learned stays: replies that were begun with it are sent again with the same
        // bytes.
        match lesson.form {
            LessonForm::NotModified(by) => {
                if !reply.learnable_304 {
                    return;
                }
                if learned.not_modified.is_none()
                    && let Ok(template) = HeadTemplate::new(head)
                {
                    learned.not_modified =
                        Some(if is_pinned { template.pinned() } else { template });
                }
                learned.not_modified_by.note(by);
            }
            LessonForm::Range(range) => {
                if learned.range.is_none()
                    && let Some(template) = PartialTemplate::learn(reply, head, Some(range), len)
                {
                    learned.range = Some(pinned(template));
                }
            }
            LessonForm::Parts(asked) => {
                let kind = reply.content_type.unwrap_or_default();
                if let Some(template) = PartialTemplate::learn(reply, head, None, len)
                    && let Some(format) = PartFormat::learn(reply, kind, body, &asked, len)
                {
                    let (count_max, template) = (asked.count, pinned(template));
                    match &mut learned.parts {
                        Some(known) => known.count_max = known.count_max.max(count_max),
                        none => {
                            *none = Some(Box::new(LearnedParts { template, format, count_max }));
                        }
                    }
                }
            }
        }
    }
}
