//! Reed-Solomon codes of 4 parts of data and 2 of parity by several libraries, behind one face.

use rusty_erasure::{Coder, DecodePlan, Matrix, coder};

pub const DATA: usize = 4;
pub const PARTS: usize = 6;

/// The parts of a row, data first.
pub type Row<'a> = [&'a mut [u8]; PARTS];

/// The code of one library, for rows of 4+2.
pub trait Code {
    /// Computes the last parts of the row from the first.
    fn encode(&mut self, row: &mut Row<'_>);
    /// Computes lost parts of data from the others.
    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]);
}

#[cfg(all(feature = "rustfs-erasure-codec", feature = "reed-solomon-erasure"))]
compile_error!("both crates bring C functions of the same names: --no-default-features with one of them");

/// How a contender is called and made.
pub type Contender = (&'static str, fn() -> Box<dyn Code>);

/// All that this build has. The first is what the product does.
pub fn contenders() -> Vec<Contender> {
    let mut all: Vec<Contender> = vec![
        ("rusty_erasure 0.4", || Box::new(RustyErasure(cauchy()))),
        ("rusty_erasure 0.4, plan kept", || Box::new(Planned { coder: cauchy(), plans: Vec::new() })),
        ("reed-solomon-simd 3.1", || Box::new(Leopard::new())),
        ("fec-rs 0.1", || Box::new(fec_rs::ReedSolomon::new(DATA, PARTS - DATA).expect("4+2"))),
    ];
    #[cfg(feature = "rustfs-erasure-codec")]
    all.push(("rustfs-erasure-codec 7.0", || Box::new(rustfs())));
    #[cfg(feature = "reed-solomon-erasure")]
    all.push(("reed-solomon-erasure 6.0", || {
        Box::new(reed_solomon_erasure::galois_8::ReedSolomon::new(DATA, PARTS - DATA).expect("4+2"))
    }));
    #[cfg(feature = "isal")]
    all.extend([
        ("ISA-L 2.31", (|| Box::new(crate::isal::IsaL::new(false))) as fn() -> Box<dyn Code>),
        ("ISA-L 2.31, plan kept", || Box::new(crate::isal::IsaL::new(true))),
    ]);
    all
}

fn cauchy() -> Coder {
    coder(Matrix::cauchy(DATA, PARTS - DATA).expect("4+2")).expect("Cauchy's matrix can be had")
}

fn shared<'a>(row: &'a Row<'_>) -> [&'a [u8]; PARTS] {
    row.each_ref().map(|part| &**part)
}

/// As `spillway-pool/src/code.rs` has it: a lost part at a time, the matrix inverted for each.
struct RustyErasure(Coder);

impl Code for RustyErasure {
    fn encode(&mut self, row: &mut Row<'_>) {
        let (data, parity) = row.split_at_mut(DATA);
        let data: [&[u8]; DATA] = std::array::from_fn(|at| &*data[at]);
        self.0.encode(&data, parity).expect("a row of 4+2");
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        for part in lost {
            let page = std::mem::take(&mut row[*part]);
            let all = shared(row);
            let there: [Option<&[u8]>; PARTS] =
                std::array::from_fn(|at| (!lost.contains(&at)).then_some(all[at]));
            self.0.recover(&there, &[*part], &mut [&mut *page]).expect("enough is there");
            row[*part] = page;
        }
    }
}

/// The same, but all that is lost at once, and what is computed of which parts are lost is kept.
struct Planned {
    coder: Coder,
    plans: Vec<(Vec<usize>, DecodePlan)>,
}

impl Code for Planned {
    fn encode(&mut self, row: &mut Row<'_>) {
        let (data, parity) = row.split_at_mut(DATA);
        let data: [&[u8]; DATA] = std::array::from_fn(|at| &*data[at]);
        self.coder.encode(&data, parity).expect("a row of 4+2");
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        if !self.plans.iter().any(|(of, _)| of == lost) {
            let present: [bool; PARTS] = std::array::from_fn(|at| !lost.contains(&at));
            let plan = self.coder.decode_plan(&present, lost).expect("enough is there");
            self.plans.push((lost.to_vec(), plan));
        }
        let (_, plan) = self.plans.iter().find(|(of, _)| of == lost).expect("it was made");
        let mut pages: [&mut [u8]; 2] = [&mut [], &mut []];
        for (part, page) in lost.iter().zip(&mut pages) {
            *page = std::mem::take(&mut row[*part]);
        }
        let all = shared(row);
        let there: [Option<&[u8]>; PARTS] =
            std::array::from_fn(|at| (!lost.contains(&at)).then_some(all[at]));
        self.coder.recover_with(plan, &there, &mut pages[..lost.len()]).expect("enough is there");
        for (part, page) in lost.iter().zip(pages) {
            row[*part] = page;
        }
    }
}

/// Without threads of its own: a page is nothing to share out.
#[cfg(feature = "rustfs-erasure-codec")]
fn rustfs() -> rustfs_erasure_codec::galois_8::ReedSolomon {
    let options = rustfs_erasure_codec::CodecOptions::builder().max_parallel_jobs(1).build();
    rustfs_erasure_codec::galois_8::ReedSolomon::with_options(DATA, PARTS - DATA, options).expect("4+2")
}

/// Parts with whether each is there, as two of the libraries like them.
fn flagged<'a>(row: &'a mut Row<'_>, lost: &[usize]) -> [(&'a mut [u8], bool); PARTS] {
    let mut at = 0;
    row.each_mut().map(|part| {
        at += 1;
        (&mut **part, !lost.contains(&(at - 1)))
    })
}

#[cfg(feature = "rustfs-erasure-codec")]
impl Code for rustfs_erasure_codec::galois_8::ReedSolomon {
    fn encode(&mut self, row: &mut Row<'_>) {
        let (data, parity) = row.split_at_mut(DATA);
        self.encode_sep(data, parity).expect("a row of 4+2");
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        self.reconstruct_data(&mut flagged(row, lost)).expect("enough is there");
    }
}

#[cfg(feature = "reed-solomon-erasure")]
impl Code for reed_solomon_erasure::galois_8::ReedSolomon {
    fn encode(&mut self, row: &mut Row<'_>) {
        let (data, parity) = row.split_at_mut(DATA);
        self.encode_sep(data, parity).expect("a row of 4+2");
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        self.reconstruct_data(&mut flagged(row, lost)).expect("enough is there");
    }
}

/// A part with whether it is there.
struct Slot<'a>(&'a mut [u8], bool);

// SAFETY: each slot has a slice that nobody else can write to, so no two of them overlap.
unsafe impl fec_rs::ReconstructShard for Slot<'_> {
    fn len(&self) -> Option<usize> {
        self.1.then_some(self.0.len())
    }

    fn get(&self) -> Option<&[u8]> {
        self.1.then_some(&*self.0)
    }

    fn get_mut(&mut self) -> Option<&mut [u8]> {
        self.1.then_some(&mut *self.0)
    }

    fn initialize(&mut self, _: usize) {
        self.0.fill(0);
        self.1 = true;
    }
}

impl Code for fec_rs::ReedSolomon {
    fn encode(&mut self, row: &mut Row<'_>) {
        let (data, parity) = row.split_at_mut(DATA);
        self.encode_sep(data, parity).expect("a row of 4+2");
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        let mut slots = flagged(row, lost).map(|(part, is_there)| Slot(part, is_there));
        self.reconstruct_data(&mut slots).expect("enough is there");
    }
}

/// `reed-solomon-simd`, which computes in room of its own: parts are copied in and out.
struct Leopard {
    of_bytes: usize,
    encoder: reed_solomon_simd::ReedSolomonEncoder,
    decoder: reed_solomon_simd::ReedSolomonDecoder,
}

impl Leopard {
    fn new() -> Self {
        let bytes = crate::measure::PAGE_BYTES;
        Self {
            of_bytes: bytes,
            encoder: reed_solomon_simd::ReedSolomonEncoder::new(DATA, PARTS - DATA, bytes).expect("4+2"),
            decoder: reed_solomon_simd::ReedSolomonDecoder::new(DATA, PARTS - DATA, bytes).expect("4+2"),
        }
    }

    fn fit(&mut self, bytes: usize) {
        if self.of_bytes != bytes {
            self.of_bytes = bytes;
            self.encoder.reset(DATA, PARTS - DATA, bytes).expect("4+2");
            self.decoder.reset(DATA, PARTS - DATA, bytes).expect("4+2");
        }
    }
}

impl Code for Leopard {
    fn encode(&mut self, row: &mut Row<'_>) {
        self.fit(row[0].len());
        let (data, parity) = row.split_at_mut(DATA);
        for part in data {
            self.encoder.add_original_shard(&**part).expect("a part of its length");
        }
        let made = self.encoder.encode().expect("a row of 4+2");
        parity.iter_mut().zip(made.recovery_iter()).for_each(|(part, made)| part.copy_from_slice(made));
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        self.fit(row[0].len());
        for part in (0..DATA).filter(|part| !lost.contains(part)) {
            self.decoder.add_original_shard(part, &*row[part]).expect("a part of its length");
        }
        for at in 0..lost.len() {
            self.decoder.add_recovery_shard(at, &*row[DATA + at]).expect("a part of its length");
        }
        let made = self.decoder.decode().expect("enough is there");
        for part in lost {
            row[*part].copy_from_slice(made.restored_original(*part).expect("it was lost"));
        }
    }
}
