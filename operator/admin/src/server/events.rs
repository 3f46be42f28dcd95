//! Bodies of replies: a text, or samples as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{Stream, unfold};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::sampler::Follower;

type Events = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// A body.
pub(super) enum Content {
    /// All of it, or nothing more.
    Whole(Option<Bytes>),
    /// Until the connection ends.
    Events(Events),
}

impl Content {
    /// A text.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Whole(Some(text.into()))
    }

    /// A moment now and each further one, as an event without a name. A reader that is slow misses
    /// some of them: nothing is made before there is room for it. `place` is given back at the end.
    pub(super) fn events(follower: Follower, place: OwnedSemaphorePermit) -> Self {
        let events =
            unfold((follower, place, true), |(mut follower, place, is_first)| async move {
                if !is_first {
                    // Over when the sampler is.
                    follower.moments.changed().await.ok()?;
                }
                let json = follower.moments.borrow_and_update().json();
                // A reader that has lost the connection comes again after this many milliseconds.
                let retry = if is_first { "retry: 2000\n" } else { "" };
                Some((Bytes::from(format!("{retry}data: {json}\n\n")), (follower, place, false)))
            });
        Self::Events(Box::pin(events))
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Events(events) => events
                .as_mut()
                .poll_next(context)
                .map(|event| event.map(|event| Ok(Frame::data(event)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}
