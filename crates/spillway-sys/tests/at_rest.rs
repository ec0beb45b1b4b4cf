//! Threads are held still for a moment, and go on. A process of its own: whoever else runs in it is held too.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use spillway_sys::at_rest::{other_threads, with_others_held};

#[test]
fn threads_stand_still_meanwhile_and_go_on() {
    assert_eq!(with_others_held(0, &|_| true, &mut || 7), Ok(7));
    let (stop, counters) = (AtomicBool::new(false), Arc::new([const { AtomicU64::new(0) }; 4]));
    let sum = || counters.iter().map(|counter| counter.load(Ordering::SeqCst)).sum::<u64>();
    let before = other_threads().unwrap();
    thread::scope(|scope| {
        for (index, counter) in counters.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    counter.fetch_add(1, Ordering::SeqCst);
                    if index % 2 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        while counters.iter().any(|counter| counter.load(Ordering::SeqCst) == 0) {
            thread::yield_now();
        }
        assert_eq!(other_threads(), Ok(before + counters.len()));
        for _ in 0..50 {
            let mut moved = 0;
            with_others_held(0, &|_| true, &mut || {
                let before = sum();
                for _ in 0..10_000 {
                    std::hint::spin_loop();
                }
                moved = sum() - before;
            })
            .unwrap();
            assert_eq!(moved, 0);
            let before = sum();
            while sum() == before {
                thread::yield_now();
            }
        }
        // Nobody may stand anywhere.
        let refused = with_others_held(0, &|_| false, &mut || ());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(refused, Err(rustix::io::Errno::BUSY));
    });
}
