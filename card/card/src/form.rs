//! In which form an entry answers a request: whole, its head, a 304, one range, several ranges; or
//! whether the server must be asked (docs/decisions/0023-ranges.md).

use nicache_cache::{Entry, EntryId, LINE_BYTES_MAX, LessonForm, Validators};
use nicache_http::{
    Agreed, ByteRange, IfRange, Method, PartsAsked, Ranges, Request, Verdict, agreed,
    agreed_if_range, evaluate,
};
use nicache_port::Port;

use crate::card::Card;
use crate::counters::CardBypass;
use crate::flow::reply::ReplyKind;
use crate::limits::RENDERED_HEAD_BYTES_MAX;
use crate::payload;

/// How a request for an entry is answered.
pub(crate) enum Form {
    /// From card memory; with one range, which it is. Several are in [`Card::ranges`].
    Send(ReplyKind, ByteRange),
    /// By the server, whose reply is to be learned from.
    Learn(LessonForm),
    /// By the server: the entry does not tell.
    Pass,
    /// By the server: servers differ, or have pages of their own for it.
    Ask(CardBypass),
}

impl<W: Port, H: Port> Card<W, H> {
    /// In which form the entry answers the request. Several ranges are left in [`Card::ranges`].
    pub(crate) fn form_of(&mut self, id: EntryId, request: &Request<'_>) -> Form {
        let Some(entry) = self.store.get(id) else { return Form::Ask(CardBypass::Conditional) };
        let is_head = request.method == Method::Head;
        if is_head && !entry.has_length() {
            return Form::Pass;
        }
        let kind = if is_head { ReplyKind::HeadOnly } else { ReplyKind::Full };
        let whole =
            Form::Send(kind, ByteRange { from: 0, to: if is_head { 0 } else { entry.body_len } });
        let verdict = match request.conditional.is_conditional() {
            false => Verdict::Full,
            true => evaluate(
                &request.conditional,
                entry.etag.as_deref(),
                entry.last_modified.as_deref(),
            ),
        };
        match (verdict, request.range) {
            (Verdict::Full, None) => whole,
            // RFC 9110 section 14.2 knows ranges of GET alone; servers send heads of 206 replies.
            (Verdict::Full, Some(_)) if is_head || !entry.may_have_ranges() => {
                Form::Ask(CardBypass::Range)
            }
            (Verdict::Full, Some(range)) => {
                let if_range = request.if_range.map_or(IfRange::Applies, |value| {
                    agreed_if_range(
                        value,
                        entry.etag.as_deref(),
                        entry.last_modified.as_deref(),
                        self.unix_s,
                    )
                });
                match if_range {
                    IfRange::Applies => {
                        let (form, ranges) = range_form(entry, range);
                        match (form, ranges) {
                            (Form::Send(ReplyKind::Parts, _), _) if self.part_sets.is_full() => {
                                Form::Ask(CardBypass::Resources)
                            }
                            (form, ranges) => {
                                self.ranges = ranges;
                                form
                            }
                        }
                    }
                    IfRange::Whole => whole,
                    IfRange::Differs => Form::Ask(CardBypass::Range),
                }
            }
            // Some servers compare otherwise if there is a range, too.
            (Verdict::NotModified, Some(_)) => Form::Ask(CardBypass::Range),
            (Verdict::NotModified, None)
                if entry.learned.not_modified.is_some()
                    && entry.learned.not_modified_by.has(Validators::of(&request.conditional)) =>
            {
                Form::Send(ReplyKind::NotModified, ByteRange::default())
            }
            (Verdict::NotModified, None) if !is_head => {
                Form::Learn(LessonForm::NotModified(Validators::of(&request.conditional)))
            }
            // 412 comes with a page of the server's own.
            (Verdict::NotModified | Verdict::Failed | Verdict::Ambiguous, _) => {
                Form::Ask(CardBypass::Conditional)
            }
        }
    }
}

/// The form of an entry for the value of Range, and its ranges if they are several.
fn range_form(entry: &Entry, range: &[u8]) -> (Form, Ranges) {
    let (len, learned) = (entry.body_len, &entry.learned);
    // 416 comes with a page of the server's own.
    let Agreed::Parts(parts) = agreed(range, len) else {
        return (Form::Ask(CardBypass::Range), Ranges::new());
    };
    let form = match parts.as_slice() {
        &[part] if learned.range.is_some() => Form::Send(ReplyKind::Range, part),
        &[part] => Form::Learn(LessonForm::Range(part)),
        several => match learned
            .parts
            .as_ref()
            .filter(|known| usize::from(known.count_max) >= several.len())
        {
            Some(known) => {
                let content = known.format.body_len(several, len);
                let range = ByteRange { from: 0, to: content };
                let head = payload::head_len(entry, ReplyKind::Parts, range, content)
                    .unwrap_or(usize::MAX);
                let texts = content - several.iter().map(ByteRange::len).sum::<u64>();
                let room = (RENDERED_HEAD_BYTES_MAX - LINE_BYTES_MAX) as u64;
                if texts.saturating_add(head as u64) <= room {
                    Form::Send(ReplyKind::Parts, range)
                } else {
                    Form::Ask(CardBypass::Resources)
                }
            }
            None => Form::Learn(LessonForm::Parts(PartsAsked::new(several, len))),
        },
    };
    (form, parts)
}
