//! A pool's last resort: `?spill=file:PATH[&spill-size=SIZE]`.

use std::path::PathBuf;

use spillway_core::size::Size;

use super::{SpecError, Uri};

const FORM: &str = "pool:...?spill=file:PATH&spill-size=SIZE";

/// A file for the pages for which a pool's donors have no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// A file that does not exist yet, a directory to make one in, or a block device.
    pub path: PathBuf,
    /// Bytes of pages that it may hold; by default as much as the donors, or the whole device.
    pub size: Option<Size>,
}

impl Uri<'_> {
    /// Where a pool spills, if it does.
    pub(super) fn spill(
        &self,
        (place, size): (Option<Vec<u8>>, Option<Vec<u8>>),
        is_coded: bool,
    ) -> Result<Option<Spill>, SpecError> {
        let size = size.map(|size| self.size_of("spill-size", &size)).transpose()?;
        let Some(place) = place else {
            return match size {
                Some(_) => Err(self.parameter("spill-size", "is of a file: name it by spill=file:PATH")),
                None => Ok(None),
            };
        };
        if is_coded {
            let reason =
                "is for pools of copies: write copies=N in place of data= and parity=, or leave it out";
            return Err(self.parameter("spill", reason));
        }
        let path = place.strip_prefix(b"file:").ok_or_else(|| {
            let place = String::from_utf8_lossy(&place).into_owned();
            self.parameter("spill", format!("'{place}' is no file of this machine: write spill=file:PATH"))
        })?;
        Ok(Some(Spill { path: self.path("the path of spill=file:", path, FORM)?, size }))
    }
}
