//! Room for connections: who is let in, and who gives way when there are too many.
//!
//! A client that lost its power never says that it has gone, and a client that means harm opens
//! connections and is silent. So when there are too many, one for which there is nothing to do
//! gives way to the new one; a client of NFS connects again when it needs to.
//!
//! *Strangers*, whom no export lets in, may ask what there is and hear that they may not have it.
//! They have a small share, and only strangers give way to them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Strangers have one of so many places.
const STRANGERS_SHARE: usize = 8;

/// A connection, as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest {
    /// What it is known by.
    pub token: u64,
    /// Where it comes from.
    pub address: IpAddr,
    /// Whether no export lets it in.
    pub is_stranger: bool,
    /// Since when there is nothing to do for it.
    pub idle_since: Option<Instant>,
}

/// Whether there is room for one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// There is.
    Free,
    /// In the place of this one.
    Of(u64),
    /// There is none, because there is something to do for each.
    None,
}

/// Looks for room for a newcomer among `len` guests of at most `guests_max`. Strangers go first;
/// then who has been idle for longest, of the address that has most connections.
pub(crate) fn room<I: Iterator<Item = Guest>>(
    guests: impl Fn() -> I,
    len: usize,
    guests_max: usize,
    is_stranger: bool,
) -> Room {
    let strangers_max = guests_max.div_ceil(STRANGERS_SHARE);
    let is_share_full =
        is_stranger && guests().filter(|guest| guest.is_stranger).count() >= strangers_max;
    if len < guests_max && !is_share_full {
        return Room::Free;
    }
    let mut of_address = HashMap::<IpAddr, usize>::new();
    for guest in guests() {
        *of_address.entry(guest.address).or_default() += 1;
    }
    guests()
        .filter(|guest| guest.is_stranger || !is_stranger)
        .filter_map(|guest| {
            let weight = (guest.is_stranger, of_address.get(&guest.address).copied());
            Some(((Reverse(weight), guest.idle_since?), guest.token))
        })
        .min()
        .map_or(Room::None, |(_, token)| Room::Of(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// Address, whether a stranger, and seconds.
    fn guests(list: &[(IpAddr, bool, Option<u64>)]) -> Vec<Guest> {
        let start = Instant::now();
        let guest = |(token, &(address, is_stranger, idle)): (usize, &(IpAddr, bool, _))| Guest {
            token: token as u64,
            address,
            is_stranger,
            idle_since: Option::map(idle, |seconds| start + Duration::from_secs(seconds)),
        };
        list.iter().enumerate().map(guest).collect()
    }

    fn find(list: &[(IpAddr, bool, Option<u64>)], guests_max: usize, is_stranger: bool) -> Room {
        let guests = guests(list);
        room(|| guests.iter().copied(), guests.len(), guests_max, is_stranger)
    }

    #[test]
    fn the_longest_idle_of_the_address_with_most_gives_way() {
        let list =
            [(B, false, Some(0)), (A, false, Some(9)), (A, false, Some(5)), (A, false, None)];
        assert_eq!(find(&list, 5, false), Room::Free);
        assert_eq!(find(&list, 4, false), Room::Of(2));
        assert_eq!(find(&list[..2], 2, false), Room::Of(0), "both have one");
        assert_eq!(find(&[(A, false, None), (B, false, None)], 2, false), Room::None);
        assert_eq!(
            find(&[(B, false, Some(1)), (A, false, None), (A, false, None)], 3, false),
            Room::Of(0)
        );
    }

    #[test]
    fn strangers_have_a_share_and_give_way_first() {
        let list =
            [(A, false, Some(0)), (B, true, Some(5)), (B, true, Some(4)), (A, false, Some(1))];
        assert_eq!(find(&list, 24, true), Room::Free, "two of three");
        assert_eq!(find(&list, 16, true), Room::Of(2), "two of two");
        assert_eq!(find(&list, 16, false), Room::Free);
        assert_eq!(find(&list, 4, false), Room::Of(2));
        assert_eq!(find(&[(A, false, Some(0))], 1, true), Room::None, "others do not give way");
    }
}
