//! Streams and playlists of the service ([`live`](super::live)).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nicache_tcp::Time;

use super::live::{LiveSource, PLAYLIST_BYTES_MAX, Playlist, Stream, segments};
use super::reply::{Body, Head, Manner, kind_of};
use super::service::{Service, forget, free};
use crate::block::{BLOCK_BYTES, Block};
use crate::files::{Found, Gone};
use crate::stack::ConnectionId;

/// How often a playlist is looked at.
const PLAYLIST_EVERY: Duration = Duration::from_millis(100);

impl Service {
    /// Serves something live from now on.
    pub fn add_live(&mut self, source: LiveSource) {
        let LiveSource { path, fifo } = source;
        match fifo {
            Some(fifo) => self.streams.push(Stream::new(path, fifo, self.streams.len() as u32)),
            None => {
                let (segments, retiring) = (Vec::new(), Vec::new());
                self.playlists.push(Playlist {
                    path,
                    file: None,
                    segments,
                    retiring,
                    due: Time::ZERO,
                });
            }
        }
    }

    /// Readable when there is more of a stream.
    pub fn live_files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().map(AsFd::as_fd)
    }

    pub(super) fn read_streams(&mut self) -> usize {
        let Self {
            streams,
            pages,
            places,
            window,
            live,
            cards,
            touched,
            sessions,
            connections,
            ..
        } = self;
        let mut done = 0;
        for stream in streams {
            if stream.read(pages, window, live, |block, gone| forget(cards, block, gone)) {
                done += 1;
                touched.extend(stream.viewers());
            }
            stream.retire(pages, |block, gone| forget(cards, block, gone));
            for id in stream.viewers_behind() {
                live.cut += 1;
                stream.leave(id);
                if let (Some(session), Some(connection)) =
                    (&mut sessions[id.0 as usize], connections.get(id))
                {
                    session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
                    connection.abort();
                    touched.push(id);
                }
            }
        }
        done
    }

    /// Segments that a playlist no longer names go as soon as nobody is sent them.
    pub(super) fn read_playlists(&mut self, now: Time) {
        for number in 0..self.playlists.len() {
            if now < self.playlists[number].due {
                continue;
            }
            self.playlists[number].due = now + PLAYLIST_EVERY;
            let path = self.playlists[number].path.clone();
            if let Found::File { file, .. } = self.site.find(&path)
                && self.playlists[number]
                    .file
                    .as_ref()
                    .is_none_or(|known| known.revision != file.revision)
                && file.bytes <= PLAYLIST_BYTES_MAX
            {
                let mut text = vec![0; file.bytes as usize];
                let Ok(len) = rustix::io::pread(&*file, &mut text, 0) else { continue };
                let named = segments(&path, &String::from_utf8_lossy(&text[..len]));
                let before = std::mem::replace(&mut self.playlists[number].segments, named);
                let former = self.playlists[number].file.replace(Arc::clone(&file));
                if let Some(former) = former.filter(|former| former.number != file.number) {
                    self.playlists[number].retiring.push(former);
                }
                for segment in before {
                    if !self.playlists[number].segments.contains(&segment)
                        && let Found::File { file, .. } = self.site.find(&segment)
                    {
                        self.playlists[number].retiring.push(file);
                    }
                }
            }
            let Self { playlists, pages, cards, .. } = self;
            playlists[number].retiring.retain(|file| {
                let blocks = (0..file.bytes.div_ceil(BLOCK_BYTES) as u32)
                    .map(|index| Block { file: file.number, index });
                let is_used =
                    |block| pages.page_of(block).is_some_and(|page| pages.is_pinned(page));
                if blocks.clone().any(is_used) {
                    return true;
                }
                blocks.for_each(|block| forget(cards, block, Gone::Used));
                false
            });
        }
    }

    /// A stream ends with its connection.
    pub(super) fn reply_live(
        &mut self,
        id: ConnectionId,
        stream: usize,
        path: &[u8],
        manner: Manner,
    ) -> Option<()> {
        let kind = kind_of(path);
        let head =
            Head::new(200, Body::Endless { kind: &kind }, Manner { keep_alive: false, ..manner });
        self.push_head(id, &head).ok()??;
        let session = self.session(id)?;
        session.is_last = true;
        if !manner.is_head {
            session.output.push_live(stream);
            self.streams[stream].join(id);
        }
        Some(())
    }
}
