//! The code by which a row's parity is computed of its pages, and a lost page of the others: Reed-Solomon
//! over bytes (GF(2^8), Cauchy's matrix), by the library `rusty_erasure`. It computes with what the processor
//! has, which it finds out by CPUID, touches no thread-local storage, and takes memory for a decoding matrix
//! alone.

use rusty_erasure::{Coder, Matrix, coder};

use crate::slabs::room::{MOST_DATA, MOST_PARITY};

/// A code of some parts of data and some of parity.
#[derive(Clone, Debug)]
pub struct Code {
    coder: Coder,
}

impl Code {
    /// Of so many parts. `None` where that are too few, or more than a slab can have.
    #[must_use]
    pub fn new(data: usize, parity: usize) -> Option<Self> {
        let is_known = (1..=MOST_DATA).contains(&data) && (1..=MOST_PARITY).contains(&parity);
        let matrix = is_known.then(|| Matrix::cauchy(data, parity).ok())??;
        Some(Self { coder: coder(matrix).ok()? })
    }

    /// Parts that are pages as they are.
    #[must_use]
    pub fn data(&self) -> usize {
        self.coder.k()
    }

    /// Parts in all, data and parity.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.coder.k() + self.coder.p()
    }

    /// Computes the parity of the pages of a row, all of one length. False where they are too few or too
    /// many: then nothing was computed.
    #[must_use]
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> bool {
        self.coder.encode(data, parity).is_ok()
    }

    /// Computes the page of one part from those of others, `None` where one is not there. False where too few
    /// are: then `page` is undefined.
    #[must_use]
    pub fn decode(&self, parts: &[Option<&[u8]>], part: usize, page: &mut [u8]) -> bool {
        self.coder.recover(parts, &[part], &mut [page]).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Dice;

    const LENGTH: usize = 136;

    fn rows(code: &Code, seed: u64) -> Vec<Vec<u8>> {
        let mut dice = Dice::new(seed);
        let mut rows: Vec<Vec<u8>> =
            (0..code.parts()).map(|_| (0..LENGTH).map(|_| dice.next_u64() as u8).collect()).collect();
        let (data, parity) = rows.split_at_mut(code.data());
        let data: Vec<&[u8]> = data.iter().map(|row| &row[..]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[..]).collect();
        assert!(code.encode(&data, &mut parity));
        rows
    }

    #[test]
    fn any_parts_as_many_as_parity_may_be_lost() {
        for (data, parity) in (2..=MOST_DATA).flat_map(|data| (1..=MOST_PARITY).map(move |of| (data, of))) {
            let code = Code::new(data, parity).unwrap();
            let rows = rows(&code, (data * 10 + parity) as u64);
            for lost in (0..1_u32 << code.parts()).filter(|lost| lost.count_ones() as usize <= parity) {
                let is_lost = |part: usize| lost >> part & 1 == 1;
                let there: Vec<Option<&[u8]>> =
                    (0..code.parts()).map(|part| (!is_lost(part)).then_some(&rows[part][..])).collect();
                for part in (0..code.parts()).filter(|part| is_lost(*part)) {
                    let mut page = vec![0; LENGTH];
                    assert!(code.decode(&there, part, &mut page));
                    assert!(page == rows[part], "{data}+{parity} without {lost:b}: part {part}");
                }
            }
        }
    }

    #[test]
    fn too_few_parts_give_nothing() {
        let code = Code::new(4, 2).unwrap();
        let rows = rows(&code, 1);
        let there: Vec<Option<&[u8]>> = (0..6).map(|part| (part > 2).then_some(&rows[part][..])).collect();
        assert!(!code.decode(&there, 0, &mut [0; LENGTH]));
        assert!(!code.encode(&[&rows[0]], &mut [&mut [0; LENGTH], &mut [0; LENGTH]]));
        assert!(Code::new(0, 2).is_none() && Code::new(9, 2).is_none() && Code::new(4, 4).is_none());
    }
}
