//! Who has mounted what. It is a courtesy to those who ask, and decides nothing.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::limits::MOUNTS_REMEMBERED_MAX;

/// Who has mounted what, as far as clients said so.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    pub(crate) list: VecDeque<(IpAddr, Vec<u8>)>,
}

impl Mounts {
    pub(crate) fn add(&mut self, client: IpAddr, path: &[u8]) {
        self.remove(client, Some(path));
        if self.list.len() == MOUNTS_REMEMBERED_MAX {
            self.list.pop_front();
        }
        self.list.push_back((client, path.to_vec()));
    }

    pub(crate) fn remove(&mut self, client: IpAddr, path: Option<&[u8]>) {
        self.list.retain(|(who, what)| *who != client || path.is_some_and(|path| path != what));
    }
}
