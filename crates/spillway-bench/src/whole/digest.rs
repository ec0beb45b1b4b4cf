//! Digests of what programs write, to tell whether two runs wrote the same.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::access::mix;

/// A digest of these bytes after what had the digest `before`.
pub(crate) fn digest(bytes: &[u8], before: u64) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let sum = words.iter().fold(before, |sum, word| mix(sum ^ u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum ^ u64::from(*byte)))
}

/// The same of a file's bytes.
pub(crate) fn digest_of_file(path: &Path, before: u64) -> std::io::Result<u64> {
    let (mut file, mut sum) = (File::open(path)?, before);
    let mut piece = Vec::new();
    loop {
        piece.clear();
        if file.by_ref().take(1 << 20).read_to_end(&mut piece)? == 0 {
            return Ok(sum);
        }
        sum = digest(&piece, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_outputs_apart() {
        let of = |bytes: &[u8]| digest(bytes, 1);
        assert_ne!(of(b"abcdefgh"), of(b"abcdefgi"));
        assert_ne!(of(b"abcdefgh"), of(b"abcdefgh\n"));
        assert_ne!(of(b"aaaaaaaabbbbbbbb"), of(b"bbbbbbbbaaaaaaaa"));
    }

    #[test]
    fn a_file_has_the_digest_of_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(digest_of_file(&path, 1).unwrap(), digest(&bytes, 1));
    }
}
