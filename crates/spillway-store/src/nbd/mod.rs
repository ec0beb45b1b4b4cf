//! NBD: the client store for `nbd://` and `nbd+unix://`, and the codec that the donor shares.
//!
//! Placeholder for the store: filled in by the next change.

pub mod wire;

use std::sync::Arc;

use crate::{SharedParts, Store, StoreError, StoreSpec};

/// See [`StoreSpec::prepare`].
pub fn prepare(spec: &StoreSpec, run_token: &str) -> Result<SharedParts, StoreError> {
    let _ = run_token;
    Err(spec.unusable("not built yet", "name another store"))
}

/// See [`StoreSpec::open`].
pub fn open(spec: &StoreSpec, parts: SharedParts, run_token: &str) -> Result<Arc<dyn Store>, StoreError> {
    let _ = (parts, run_token);
    Err(spec.unusable("not built yet", "name another store"))
}
