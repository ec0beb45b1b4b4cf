//! What the program's threads ask for, done on a pager thread while the hook waits.

use std::time::Duration;

use spillway_sys::uffd::Fault;

use crate::kernel::{ForkAdvice, Kernel};
use crate::process::worker::Worker;
use crate::run::state::{Child, Counter};
use crate::space::fork::ForkUses;
use crate::threads::calls::{Operation, Request, TRY_AGAIN};

/// Before a call that a fork keeps out is turned away.
const WHILE_A_THREAD_FORKS: Duration = Duration::from_micros(50);

impl<K: Kernel> Worker<K> {
    /// Does what a hook asks for.
    pub fn serve_call(&mut self, request: Request) -> usize {
        let [a, b, c, d, e, f] = request.arguments;
        match request.operation {
            Operation::ForkBegin => {
                return self.begin_fork(&ForkUses { lived_in: [a, b, c], numbers: [d, e, f] });
            }
            Operation::ForkEnd => {
                self.end_fork(a as u32, Child::from_word(b));
                return 0;
            }
            Operation::LeaveInline => return self.leave_inline(),
            Operation::Serve => {
                let (write, write_protected) = (b & 1 != 0, b & 2 != 0);
                let fault = Fault { address: a, write, write_protected, thread_id: c as u32 };
                return usize::from(!self.serve_fault(fault));
            }
            _ => {}
        }
        let Some(_pass) = self.engine.enter() else {
            // Who asks asks again at once, for a hook may not sleep: a filter may forbid it. A fork may take
            // long.
            K::sleep(WHILE_A_THREAD_FORKS);
            return TRY_AGAIN;
        };
        self.note_births(&request);
        match request.operation {
            Operation::Map => usize::from(self.map_or_leave(a..a + b, c != 0)),
            Operation::Forget => self.forget(&(a..a + b), c != 0),
            Operation::Discard => self.discard(a..a + b),
            Operation::RemapBegin => self.begin_remap(a..a + b),
            Operation::RemapEnd => self.end_remap(a..a + b, c..c + d),
            Operation::Grown => self.grown(a, b..b + c),
            Operation::Adopt => self.adopt(a..a + b),
            Operation::Unmanage => self.unmanage(a..a + b),
            Operation::AdviseOnFork => self.advise_on_fork(&(a..a + b), ForkAdvice::from_word(c)),
            Operation::CountUnmanaged => {
                self.at.run.count(Counter::UnmanagedBytes, a as u64);
                0
            }
            Operation::ForkBegin | Operation::ForkEnd | Operation::Serve | Operation::LeaveInline => 0,
        }
    }
}
