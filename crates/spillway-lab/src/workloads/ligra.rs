//! What Ligra's algorithms have in common: a frontier of vertices that is a list while it is small and flags
//! while it is large (Shun and Blelloch, PPoPP 2013, section 4).

use super::graph::Graph;
use crate::access::Accesses;
use crate::memory::{AddressSpace, Array};

/// A frontier with more vertices and out-edges than one in so many of the graph's edges is dense (Ligra's
/// default).
const DENSE_SHARE: usize = 20;
/// Flags that one step of a conversion handles.
const STEP_FLAGS: usize = 8192;
/// List entries that one step of a conversion handles.
const STEP_ENTRIES: usize = 512;

/// A frontier and the one that is being made from it.
pub struct Frontier {
    list: [Array<u32>; 2],
    flags: [Array<u8>; 2],
    /// Which of the two is the current one.
    current: usize,
    len: usize,
    next_len: usize,
    next_edges: usize,
}

/// How far a conversion has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Convert {
    /// Clears the flags, from this one on.
    Clear(usize),
    /// Sets the flags of the list's vertices, from this entry on.
    Set(usize),
    /// Lists the vertices whose flags are set, from this one on.
    Pack(usize),
    /// There is nothing more to do.
    Done,
}

impl Frontier {
    /// A frontier that holds no vertex.
    pub fn new(space: &mut AddressSpace, vertices: usize) -> Self {
        Self {
            list: [space.filled("frontier", 0, vertices), space.filled("next frontier", 0, vertices)],
            flags: [
                space.filled("frontier flags", 0, vertices),
                space.filled("next frontier flags", 0, vertices),
            ],
            current: 0,
            len: 0,
            next_len: 0,
            next_edges: 0,
        }
    }

    /// Bytes that it takes for a vertex.
    pub const VERTEX_BYTES: usize = 10;

    /// Vertices in the current frontier.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether a frontier of so many vertices with so many out-edges is dense.
    pub fn is_dense(graph: &Graph, vertices: usize, edges: usize) -> bool {
        vertices + edges > graph.edges() / DENSE_SHARE
    }

    /// A vertex of the current list.
    #[inline]
    pub fn entry(&self, index: usize, accesses: &mut Accesses) -> u32 {
        self.list[self.current].get(index, accesses)
    }

    /// Whether a vertex is in the current flags.
    #[inline]
    pub fn has(&self, vertex: u32, accesses: &mut Accesses) -> bool {
        self.flags[self.current].get(vertex as usize, accesses) != 0
    }

    /// Appends a vertex to the next list, with its out-edges.
    pub fn append(&mut self, vertex: u32, edges: usize, accesses: &mut Accesses) {
        self.list[1 - self.current].set(self.next_len, vertex, accesses);
        self.next_len += 1;
        self.next_edges += edges;
    }

    /// Says for a run of vertices whether they are in the next frontier.
    pub fn write_flags(&mut self, from: usize, members: &[u8], edges: usize, accesses: &mut Accesses) {
        let run = from..from + members.len();
        self.flags[1 - self.current].write_run(run, accesses).copy_from_slice(members);
        self.next_len += members.iter().filter(|&&member| member != 0).count();
        self.next_edges += edges;
    }

    /// The next frontier becomes the current one: answers how many vertices and out-edges it has.
    pub fn advance(&mut self) -> (usize, usize) {
        self.current = 1 - self.current;
        let edges = self.next_edges;
        (self.len, self.next_len, self.next_edges) = (self.next_len, 0, 0);
        (self.len, edges)
    }

    /// How to begin when the current frontier is wanted `dense` and lies there as a list or as flags.
    pub fn conversion(is_dense: bool, wanted_dense: bool) -> Convert {
        match (is_dense, wanted_dense) {
            (false, true) => Convert::Clear(0),
            (true, false) => Convert::Pack(0),
            _ => Convert::Done,
        }
    }

    /// Goes on with a conversion by a step.
    pub fn convert(&mut self, convert: Convert, accesses: &mut Accesses) -> Convert {
        let (list, flags) = (&mut self.list[self.current], &mut self.flags[self.current]);
        match convert {
            Convert::Clear(from) => {
                let end = flags.len().min(from + STEP_FLAGS);
                flags.write_run(from..end, accesses).fill(0);
                if end < flags.len() { Convert::Clear(end) } else { Convert::Set(0) }
            }
            Convert::Set(from) => {
                let end = self.len.min(from + STEP_ENTRIES);
                for &vertex in list.read_run(from..end, accesses) {
                    flags.set(vertex as usize, 1, accesses);
                }
                if end < self.len { Convert::Set(end) } else { Convert::Done }
            }
            Convert::Pack(from) => {
                let end = flags.len().min(from + STEP_FLAGS);
                let mut packed = if from == 0 { 0 } else { self.next_len };
                let members = flags.read_run(from..end, accesses);
                for (vertex, _) in (from..).zip(members).filter(|(_, member)| **member != 0) {
                    list.set(packed, vertex as u32, accesses);
                    packed += 1;
                }
                // The next frontier is not begun while this one is packed: its length counts what is packed.
                self.next_len = if end < flags.len() { packed } else { 0 };
                if end < flags.len() { Convert::Pack(end) } else { Convert::Done }
            }
            Convert::Done => Convert::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_there_and_back() {
        let mut frontier = Frontier::new(&mut AddressSpace::default(), 20_000);
        let mut accesses = Accesses::new();
        let members = [3, 9000, 17, 19_999];
        for vertex in members {
            frontier.append(vertex, 2, &mut accesses);
        }
        assert_eq!(frontier.advance(), (4, 8));
        let mut run = |frontier: &mut Frontier, mut convert: Convert| {
            while convert != Convert::Done {
                convert = frontier.convert(convert, &mut accesses);
            }
        };
        run(&mut frontier, Frontier::conversion(false, true));
        let mut none = Accesses::new();
        let flagged: Vec<_> = (0..20_000).filter(|&vertex| frontier.has(vertex, &mut none)).collect();
        assert_eq!(flagged, [3, 17, 9000, 19_999]);
        run(&mut frontier, Frontier::conversion(true, false));
        let listed: Vec<_> = (0..4).map(|index| frontier.entry(index, &mut none)).collect();
        assert_eq!(listed, flagged);
        frontier.append(1, 5, &mut none);
        assert_eq!(frontier.advance(), (1, 5));
    }
}
