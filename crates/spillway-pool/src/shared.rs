//! The words that the table is made of, which all processes of a run share. Where loom tries every order in
//! which threads can get in each other's way, they are loom's.

#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::AtomicU64;

#[cfg(all(test, loom))]
pub(crate) use of_loom::AtomicU64;

#[cfg(all(test, loom))]
mod of_loom {
    use std::sync::atomic::Ordering;

    use loom::sync::atomic::{self, fence};

    /// Loom takes a sequentially consistent access for less than it is; a fence before each makes up for
    /// that.
    #[derive(Debug)]
    pub struct AtomicU64(atomic::AtomicU64);

    fn beforehand(order: Ordering) {
        assert_eq!(order, Ordering::SeqCst, "the table knows no other order");
        fence(Ordering::SeqCst);
    }

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        pub fn load(&self, order: Ordering) -> u64 {
            beforehand(order);
            self.0.load(order)
        }

        /// Loom leaves open which of two stores that know nothing of each other came last; swaps have an
        /// order.
        pub fn store(&self, value: u64, order: Ordering) {
            let _ = self.swap(value, order);
        }

        pub fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            order: Ordering,
            on_failure: Ordering,
        ) -> Result<u64, u64> {
            beforehand(order);
            self.0.compare_exchange(current, new, order, on_failure)
        }

        pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            beforehand(order);
            self.0.fetch_add(value, order)
        }

        pub fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            beforehand(order);
            self.0.fetch_sub(value, order)
        }

        pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
            beforehand(order);
            self.0.fetch_or(value, order)
        }

        pub fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
            beforehand(order);
            self.0.fetch_and(value, order)
        }

        pub fn swap(&self, value: u64, order: Ordering) -> u64 {
            beforehand(order);
            self.0.swap(value, order)
        }

        pub fn fetch_update(
            &self,
            order: Ordering,
            on_failure: Ordering,
            update: impl FnMut(u64) -> Option<u64>,
        ) -> Result<u64, u64> {
            beforehand(order);
            self.0.fetch_update(order, on_failure, update)
        }
    }
}
