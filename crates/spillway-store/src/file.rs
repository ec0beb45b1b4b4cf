//! placeholder
use crate::{SharedParts, Store, StoreError, StoreSpec};
use spillway_core::size::Size;
use std::path::Path;
use std::sync::Arc;
pub(crate) fn prepare(spec: &StoreSpec, path: &Path, size: Size) -> Result<SharedParts, StoreError> {
    let _ = (path, size);
    Err(spec.unusable("not built yet", "name another store"))
}
pub(crate) fn open(spec: &StoreSpec, parts: SharedParts) -> Result<Arc<dyn Store>, StoreError> {
    let _ = parts;
    Err(spec.unusable("not built yet", "name another store"))
}
