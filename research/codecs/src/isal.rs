//! Intel's ISA-L, with the same matrix as the product's.

// For what it links.
use isal_sys as _;

use crate::codes::{Code, DATA, PARTS, Row};

/// ISA-L's tables take so many bytes for each coefficient.
const TABLE_BYTES: usize = 32;

// Signatures as in erasure_code.h of ISA-L.
unsafe extern "C" {
    fn gf_gen_cauchy1_matrix(matrix: *mut u8, rows: i32, columns: i32);
    fn gf_invert_matrix(matrix: *mut u8, inverse: *mut u8, rows: i32) -> i32;
    fn ec_init_tables(columns: i32, rows: i32, matrix: *const u8, tables: *mut u8);
    fn ec_encode_data(
        bytes: i32,
        columns: i32,
        rows: i32,
        tables: *const u8,
        data: *const *const u8,
        made: *const *mut u8,
    );
}

type Tables = [u8; TABLE_BYTES * DATA * (PARTS - DATA)];

/// What is needed to compute what was lost: of which parts, a bit for each, and how.
struct Plan {
    lost: u8,
    survivors: [usize; DATA],
    tables: Tables,
}

fn bits(parts: &[usize]) -> u8 {
    parts.iter().fold(0, |bits, part| bits | 1 << part)
}

pub struct IsaL {
    matrix: [u8; PARTS * DATA],
    tables: Tables,
    plans: Option<Vec<Plan>>,
}

impl IsaL {
    pub fn new(keeps_plans: bool) -> Self {
        let mut matrix = [0; PARTS * DATA];
        let mut tables = [0; size_of::<Tables>()];
        // SAFETY: the matrix is as large as is said, and the tables have room for its last rows.
        unsafe {
            gf_gen_cauchy1_matrix(matrix.as_mut_ptr(), PARTS as i32, DATA as i32);
            ec_init_tables(
                DATA as i32,
                (PARTS - DATA) as i32,
                matrix[DATA * DATA..].as_ptr(),
                tables.as_mut_ptr(),
            );
        }
        Self { matrix, tables, plans: keeps_plans.then(Vec::new) }
    }

    fn plan(&self, lost: &[usize]) -> Plan {
        let mut there = (0..PARTS).filter(|part| !lost.contains(part));
        let survivors: [usize; DATA] = std::array::from_fn(|_| there.next().expect("enough is there"));
        let mut of_survivors = [0; DATA * DATA];
        for (row, part) in of_survivors.chunks_mut(DATA).zip(survivors) {
            row.copy_from_slice(&self.matrix[part * DATA..][..DATA]);
        }
        let mut inverse = [0; DATA * DATA];
        let mut rows = [0; (PARTS - DATA) * DATA];
        let mut tables = [0; size_of::<Tables>()];
        // SAFETY: both have as many rows and columns as is said.
        let made = unsafe { gf_invert_matrix(of_survivors.as_mut_ptr(), inverse.as_mut_ptr(), DATA as i32) };
        assert_eq!(made, 0, "every part of Cauchy's matrix has an inverse");
        for (row, part) in rows.chunks_mut(DATA).zip(lost) {
            row.copy_from_slice(&inverse[part * DATA..][..DATA]);
        }
        // SAFETY: there are no more lost parts than rows, and tables for all of them.
        unsafe { ec_init_tables(DATA as i32, lost.len() as i32, rows.as_ptr(), tables.as_mut_ptr()) };
        Plan { lost: bits(lost), survivors, tables }
    }
}

/// Computes some parts of a row from four others.
fn compute(tables: &Tables, row: &mut Row<'_>, from: [usize; DATA], to: &[usize]) {
    let bytes = row[0].len();
    assert!(to.len() <= PARTS - DATA && row.iter().all(|part| part.len() == bytes));
    let data = from.map(|part| row[part].as_ptr());
    let mut made = [std::ptr::null_mut(); PARTS - DATA];
    made.iter_mut().zip(to).for_each(|(made, part)| *made = row[*part].as_mut_ptr());
    // SAFETY: all parts are of this length, there are as many as is said, and those that are written to are
    // none of those that are read.
    unsafe {
        ec_encode_data(
            bytes as i32,
            DATA as i32,
            to.len() as i32,
            tables.as_ptr(),
            data.as_ptr(),
            made.as_ptr(),
        );
    }
}

impl Code for IsaL {
    fn encode(&mut self, row: &mut Row<'_>) {
        compute(&self.tables, row, std::array::from_fn(|part| part), &[DATA, DATA + 1]);
    }

    fn decode(&mut self, row: &mut Row<'_>, lost: &[usize]) {
        if self.plans.is_none() {
            let plan = self.plan(lost);
            return compute(&plan.tables, row, plan.survivors, lost);
        }
        let known = self.plans.iter().flatten().position(|plan| plan.lost == bits(lost));
        let made = known.is_none().then(|| self.plan(lost));
        let plans = self.plans.get_or_insert_default();
        plans.extend(made);
        let plan = &plans[known.unwrap_or(plans.len() - 1)];
        compute(&plan.tables, row, plan.survivors, lost);
    }
}
