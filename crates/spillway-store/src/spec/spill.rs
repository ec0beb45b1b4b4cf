//! A pool's last resort: `?spill=file:PATH[&spill-size=SIZE]`.

use super::pool::Spill;
use super::{SpecError, Uri};

const FORM: &str = "pool:...?spill=file:PATH&spill-size=SIZE";

impl Uri<'_> {
    /// Where a pool spills, if it does.
    pub(super) fn spill(
        &self,
        (place, size): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> Result<Option<Spill>, SpecError> {
        let size = size.map(|size| self.size_of("spill-size", &size)).transpose()?;
        let Some(place) = place else {
            return match size {
                Some(_) => Err(self.parameter("spill-size", "is of a file: name it by spill=file:PATH")),
                None => Ok(None),
            };
        };
        let path = place.strip_prefix(b"file:").ok_or_else(|| {
            let place = String::from_utf8_lossy(&place).into_owned();
            self.parameter("spill", format!("'{place}' is no file of this machine: write spill=file:PATH"))
        })?;
        Ok(Some(Spill { path: self.path("the path of spill=file:", path, FORM)?, size }))
    }
}
