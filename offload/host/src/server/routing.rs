//! By which card a client is served (Kim et al. 2002, section 6.3).

use super::config::{CardLink, Route};
use super::service::{Card, Service};
use crate::block::{BLOCK_BYTES, Block};
use crate::files::OpenFile;
use crate::stack::ConnectionId;

/// Blocks of a file by which a card is chosen.
const BLOCKS_COUNTED: u32 = 64;

impl Service {
    /// Chooses the card for a connection that asks for its first file.
    pub(super) fn choose_card(&mut self, id: ConnectionId, file: &OpenFile) {
        let count = self.cards.len();
        let Some(session) = self.sessions[id.0 as usize].as_mut() else { return };
        if std::mem::replace(&mut session.is_routed, true)
            || self.route == Route::Fixed
            || count < 2
        {
            return;
        }
        let came_by = session.card;
        let blocks = (file.bytes.div_ceil(BLOCK_BYTES) as u32).min(BLOCKS_COUNTED);
        let known = |card: &mut Card| match &mut card.driver {
            None => None,
            Some(driver) => {
                let knows = |index: &u32| {
                    driver.directory().knows(Block { file: file.number, index: *index })
                };
                Some((0..blocks).filter(knows).count())
            }
        };
        let counts: Vec<Option<usize>> = self.cards.iter_mut().map(known).collect();
        let most = counts.iter().flatten().max().copied().unwrap_or(0);
        let chosen = match most {
            0 => Some(file.number.0 as usize % count).filter(|card| counts[*card].is_some()),
            most if counts[came_by] == Some(most) => Some(came_by),
            most => counts.iter().position(|count| *count == Some(most)),
        };
        if let Some(card) = chosen
            && card != came_by
            && let Some(connection) = self.connections.get(id)
        {
            let CardLink { mac, peer_mac, .. } = self.cards[card].port;
            connection.reroute(mac, peer_mac);
            self.counters.rerouted += 1;
            if let Some(session) = self.session(id) {
                session.card = card;
            }
        }
    }
}
