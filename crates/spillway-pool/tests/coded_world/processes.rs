//! The processes of a run: they fork, and parent and child share what there is.

use super::*;

impl World {
    /// Time passes for the directory; processes fork.
    pub(super) fn fork_some(&mut self) {
        self.directory.pass(self.now);
        if self.forks.as_mut().is_some_and(Forks::has_forked) {
            self.actors.push(Actor::Idle);
            self.connections.push(Connections::new());
            self.stopped.push(0);
            self.forked += 1;
        }
    }

    /// A number that a process draws.
    pub(super) fn drawn_by(&mut self, actor: usize) -> u64 {
        match &mut self.forks {
            Some(forks) => forks.next_of(actor),
            None => self.dice.next_u64(),
        }
    }

    /// Whether those who are at a slot only read it, as parent and child may.
    pub(super) fn shares(&self, slot: u32) -> bool {
        let has = |pages: &[(u32, u64)]| pages.iter().any(|(of, _)| *of == slot);
        let writes = |actor: &Actor| matches!(actor, Actor::Writing(writing) if has(&writing.pages));
        self.forks.is_some() && !self.actors.iter().any(writes)
    }
}
