//! What is free on the nodes of a tier.

use std::cmp::Reverse;

/// The nodes of a tier with what is free on each, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRoom(pub Vec<(u32, u32)>);

impl NodeRoom {
    /// Free pages on all of them.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.0.iter().fold(0, |sum, (_, free)| sum.saturating_add(*free))
    }

    /// The node with most room.
    #[must_use]
    pub fn best(&self) -> Option<u32> {
        self.0.iter().max_by_key(|(node, free)| (*free, Reverse(*node))).map(|(node, _)| *node)
    }

    /// So many pages of a node were taken, or given back.
    pub fn change(&mut self, node: u32, taken: i64) {
        if let Some((_, free)) = self.0.iter_mut().find(|(known, _)| *known == node) {
            *free = (i64::from(*free) - taken).clamp(0, i64::from(u32::MAX)) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_with_most_room_is_filled_first() {
        let mut room = NodeRoom(vec![(0, 10), (2, 30)]);
        assert_eq!((room.best(), room.free()), (Some(2), 40));
        room.change(2, 25);
        assert_eq!((room.best(), room.free()), (Some(0), 15));
        room.change(2, 100);
        room.change(7, 1);
        assert_eq!(room.free(), 10, "never less than nothing");
        room.change(0, -5);
        assert_eq!(room.free(), 15);
        assert_eq!(NodeRoom(vec![(3, 5), (1, 5)]).best(), Some(1), "of equals the first");
        assert_eq!(NodeRoom::default().best(), None);
    }
}
