//! Changes of files are carried over to the cards (Kim et al. 2002, section 6.3).

use std::time::Duration;

use nicache_tcp::Time;

use super::service::{Broken, Card, Service, forget};
use crate::block::{BLOCK_BYTES, Block};
use crate::directory::Coherence;
use crate::files::{Gone, LoadError, OpenFile, load};

/// How often changes are carried over to the cards.
const CARRY_EVERY: Duration = Duration::from_millis(2);

impl Service {
    /// Carries changes of files over to the cards, unless they are to find out themselves.
    pub(super) fn carry_changes(&mut self, now: Time) -> Result<(), (usize, Broken)> {
        if self.coherence == Coherence::Lazy || now < self.carry_due {
            return Ok(());
        }
        self.carry_due = now + CARRY_EVERY;
        let Some(epoch) = self.site.table().map(|table| table.epoch()) else { return Ok(()) };
        if epoch == self.carried {
            return Ok(());
        }
        let mut is_carried = true;
        for file in self.site.changed_files() {
            let blocks = file.bytes.div_ceil(BLOCK_BYTES) as u32;
            let is_known = |cards: &mut Vec<Card>, block| {
                cards
                    .iter_mut()
                    .filter_map(|card| card.driver.as_mut())
                    .any(|driver| driver.directory().knows(block))
            };
            let known: Vec<Block> = (0..blocks)
                .map(|index| Block { file: file.number, index })
                .filter(|&block| is_known(&mut self.cards, block))
                .collect();
            match self.coherence {
                Coherence::Lazy => {}
                Coherence::Eager => known
                    .into_iter()
                    .for_each(|block| forget(&mut self.cards, block, Gone::Outdated)),
                Coherence::Update if known.is_empty() => {}
                // One that is still being written is carried over when it is done.
                Coherence::Update => match self.site.look_again(&file) {
                    Some(again) => self.update_blocks(&again, &known)?,
                    None => is_carried = false,
                },
            }
        }
        if is_carried {
            self.carried = epoch;
        }
        Ok(())
    }

    fn update_blocks(&mut self, file: &OpenFile, known: &[Block]) -> Result<(), (usize, Broken)> {
        let Self { pages, window, site, cards, .. } = self;
        let Some(table) = site.table() else { return Ok(()) };
        for &block in known {
            let range = (block.offset(), (block.offset() + BLOCK_BYTES).min(file.bytes));
            let mut found = Vec::new();
            // The page of the former revision goes, and what the cards have of it stays, to be
            // replaced.
            let gone = |gone_block: Block, gone| {
                if gone_block != block {
                    forget(cards, gone_block, gone);
                }
            };
            let loaded = if range.0 < range.1 {
                load(file, table, range, pages, window, &mut found, gone)
            } else {
                Err(LoadError::Changed)
            };
            for (number, card) in cards.iter_mut().enumerate() {
                let Some(driver) = &mut card.driver else { continue };
                let is_updated = match (loaded, found.first()) {
                    (Ok(()), Some(&page)) => {
                        driver.update(page, pages).map_err(|error| (number, error.into()))?
                    }
                    _ => false,
                };
                if !is_updated {
                    driver.directory().invalidate_older(block, file.revision);
                }
            }
            found.into_iter().for_each(|page| pages.unpin(page));
        }
        Ok(())
    }
}
