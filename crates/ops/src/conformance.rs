//! Takes: an op's cases.
//! Gives: whether its SIMD writes the reference's bytes and nothing else, on every level and pool.
//! Never: tolerances.

mod cases;
mod memory;

pub use cases::{Inputs, bytes, rows};

use std::ops::Range;

use crate::conformance::memory::Bound;
use crate::{Case, Dims, HostArgs, HostExec, Level, Op};

/// Ops that only move bytes or indices, and so have no SIMD. A new op must have it or be named here.
pub const WITHOUT_SIMD: &[&str] = &["embed", "select", "moe_group", "digest"];

/// Fewest cases an op may have.
pub const LEAST_CASES: usize = 5;

/// Outputs are filled with other bytes before the definition and before the implementation, so that a byte
/// which one of them leaves unwritten differs. As f32 the first is NaN, the second 3.4e38.
const POISON: [u8; 2] = [0xFF, 0x7F];

/// A planted error: one bit of the implementation's output. For the test of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Written operand.
    pub operand: usize,
    /// Bit of its bytes, taken modulo their number.
    pub bit: usize,
}

/// What was found instead of the definition's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Name of the op.
    pub op: &'static str,
    /// Name of the case.
    pub case: String,
    /// Name of the operand.
    pub operand: &'static str,
    /// What kind of difference.
    pub what: What,
    /// First byte that differs.
    pub byte: usize,
    /// The four aligned bytes around it, as defined.
    pub expected: [u8; 4],
    /// The four aligned bytes around it, as found.
    pub found: [u8; 4],
    /// Bytes that differ.
    pub differing: usize,
}

/// Kinds of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Another result than the definition's.
    Result,
    /// Bytes behind an operand were written.
    Guard,
    /// An operand that is only read was written.
    Read,
    /// Another result when rows are computed in other pieces.
    Rows,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.what {
            What::Result => "differs from the definition",
            What::Guard => "was written past its end",
            What::Read => "is only read but was written",
            What::Rows => "depends on how rows are cut into runs",
        };
        let [expected, found] = [self.expected, self.found].map(u32::from_le_bytes);
        write!(f, "{} ({}), operand {} {what}: byte {}", self.op, self.case, self.operand, self.byte)?;
        write!(f, " (element {} if of 4 bytes)", self.byte / 4)?;
        write!(f, ", expected {expected:#010x} = {:e}", f32::from_bits(expected))?;
        write!(f, ", found {found:#010x} = {:e}", f32::from_bits(found))?;
        write!(f, "; {} bytes differ", self.differing)
    }
}

/// Runs the reference and `exec`'s implementation on the case with differently poisoned outputs and compares
/// every written byte; guards behind operands and operands that are only read must be untouched. An op
/// without SIMD is compared with itself: it must write everything and nothing else.
pub fn check<D: Op>(case: &Case<D>, exec: &HostExec, fault: Option<Fault>) -> Result<(), Mismatch> {
    against(case, &defined(case)?, exec, fault)
}

/// What the definition writes.
fn defined<D: Op>(case: &Case<D>) -> Result<Vec<Vec<u8>>, Mismatch> {
    run(case, POISON[0], |args| case.desc.reference(args))
}

/// [`check`] against what the definition wrote.
fn against<D: Op>(
    case: &Case<D>,
    want: &[Vec<u8>],
    exec: &HostExec,
    fault: Option<Fault>,
) -> Result<(), Mismatch> {
    let mut got = run(case, POISON[1], |args| run_on(&case.desc, exec, args))?;
    if let Some(fault) = fault {
        let bytes = &mut got[fault.operand];
        let bit = fault.bit % (8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    compare(case, What::Result, want, &got)
}

/// Runs the case's rows in pieces, one after the other, and compares with all at once: one by one, and in
/// halves. Operands whose size grows with rows are cut, states are carried on. `None`: the op is not one of
/// rows (it reads the grouping of a whole step or writes one).
pub fn check_rows<D: Op>(case: &Case<D>, exec: &HostExec) -> Option<Result<(), Mismatch>> {
    let cut = Cut::of(case)?;
    let whole = || run(case, POISON[0], |args| run_on(&case.desc, exec, args));
    let pieces = |step: usize| -> Result<(), Mismatch> {
        let mut writes = case.writes.clone();
        for (i, write) in writes.iter_mut().enumerate() {
            write.resize(case.shapes().writes[i].bytes, POISON[1]);
        }
        let mut first = 0;
        while first < case.rows.len() {
            let part = first..(first + step).min(case.rows.len());
            cut.run(case, exec, part.clone(), &mut writes)?;
            first = part.end;
        }
        compare(case, What::Rows, &whole()?, &writes)
    };
    Some(pieces(1).and_then(|()| pieces(case.rows.len().div_ceil(2))))
}

/// What checking an op did: for the line that the test prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Name of the op.
    pub op: &'static str,
    /// Cases checked.
    pub cases: usize,
    /// Cases whose rows were also computed in pieces.
    pub row_cases: usize,
    /// Levels run.
    pub levels: Vec<Level>,
    /// Levels this machine lacks.
    pub skipped: Vec<Level>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} cases, {} of them also by rows; levels:", self.op, self.cases, self.row_cases)?;
        self.levels.iter().try_for_each(|l| write!(f, " {}", l.name()))?;
        self.skipped.iter().try_for_each(|l| write!(f, "; skipped: {} (not on this machine)", l.name()))
    }
}

/// Every case of an op on every level of this machine with one and two threads; the error is a line for
/// people.
pub fn check_op<D: Op>() -> Result<Report, String> {
    let cases = D::cases();
    let named = WITHOUT_SIMD.contains(&D::NAME);
    if D::SIMD == named {
        return Err(format!("{}: an op has SIMD or is named in WITHOUT_SIMD, one of both", D::NAME));
    }
    if cases.len() < LEAST_CASES {
        return Err(format!("{}: {} cases, at least {LEAST_CASES} are asked for", D::NAME, cases.len()));
    }
    let (levels, skipped): (Vec<Level>, Vec<Level>) = match D::SIMD {
        true => [Level::Avx2, Level::Avx512].into_iter().partition(|l| *l <= Level::detect()),
        false => (vec![Level::Scalar], Vec::new()),
    };
    let pools: Vec<HostExec> =
        levels.iter().flat_map(|l| [HostExec::new(*l, 1), HostExec::new(*l, 2)]).collect();
    let scalar = HostExec::new(Level::Scalar, 1);
    let mut row_cases = 0;
    for case in &cases {
        case.desc
            .validate()
            .map_err(|e| format!("{} ({}): its own case is refused: {e}", D::NAME, case.name))?;
        let want = defined(case).map_err(|e| format!("definition: {e}"))?;
        let by_rows = check_rows(case, &scalar);
        row_cases += usize::from(by_rows.is_some());
        by_rows.unwrap_or(Ok(())).map_err(|e| format!("definition: {e}"))?;
        for exec in &pools {
            let result =
                against(case, &want, exec, None).and_then(|()| check_rows(case, exec).unwrap_or(Ok(())));
            result.map_err(|e| format!("{}, {} threads: {e}", exec.level.name(), exec.threads()))?;
        }
    }
    Ok(Report { op: D::NAME, cases: cases.len(), row_cases, levels, skipped })
}

/// Plants one flipped bit in every written operand of some cases of an op, spread over its list; each must be
/// caught.
pub fn check_faults<D: Op>() -> Result<(), String> {
    let exec = HostExec::new(Level::detect(), 1);
    let cases = D::cases();
    let apart = (cases.len() / LEAST_CASES).max(1);
    for (seed, case) in cases.iter().enumerate().step_by(apart) {
        let want = defined(case).map_err(|e| format!("definition: {e}"))?;
        for (operand, spec) in case.shapes().writes.iter().enumerate().filter(|(_, s)| s.bytes > 0) {
            let bit = (seed + 1).wrapping_mul(0x9E37_79B9) % (8 * spec.bytes);
            match against(case, &want, &exec, Some(Fault { operand, bit })) {
                Err(e) if e.byte == bit / 8 && e.operand == spec.name && e.differing == 1 => {}
                other => {
                    let place = format!("bit {bit} of {}", spec.name);
                    return Err(format!("{} ({}): flipped {place}, got {other:?}", D::NAME, case.name));
                }
            }
        }
    }
    Ok(())
}

/// The implementation that `exec` asks for.
fn run_on<D: Op>(desc: &D, exec: &HostExec, args: HostArgs<'_>) {
    if D::SIMD && exec.level > Level::Scalar {
        exec.install(|| desc.simd(exec, args));
    } else {
        desc.reference(args);
    }
}

/// Runs `op` on copies of the case's operands; gives the written operands.
fn run<D: Op>(case: &Case<D>, poison: u8, op: impl FnOnce(HostArgs<'_>)) -> Result<Vec<Vec<u8>>, Mismatch> {
    let shapes = case.shapes();
    assert_eq!(case.dims.rows, case.rows.len(), "{} ({})", D::NAME, case.name);
    let mut bound = Bound::new(case, &shapes, poison);
    op(bound.args());
    for (i, spec) in shapes.reads.iter().enumerate() {
        let (operand, guard) = bound.read(i);
        compare_bytes(case, spec.name, What::Read, &case.reads[i], operand)?;
        compare_bytes(case, spec.name, What::Guard, &vec![poison; guard.len()], guard)?;
    }
    for (i, spec) in shapes.writes.iter().enumerate() {
        let guard = bound.written(i).1;
        compare_bytes(case, spec.name, What::Guard, &vec![poison; guard.len()], guard)?;
    }
    Ok((0..shapes.writes.len()).map(|i| bound.written(i).0.to_vec()).collect())
}

fn compare<D: Op>(case: &Case<D>, what: What, want: &[Vec<u8>], got: &[Vec<u8>]) -> Result<(), Mismatch> {
    let shapes = case.shapes();
    let mut operands = shapes.writes.iter().zip(want).zip(got);
    operands.try_for_each(|((spec, want), got)| compare_bytes(case, spec.name, what, want, got))
}

fn compare_bytes<D: Op>(
    case: &Case<D>,
    operand: &'static str,
    what: What,
    want: &[u8],
    got: &[u8],
) -> Result<(), Mismatch> {
    if want == got {
        return Ok(());
    }
    assert_eq!(want.len(), got.len(), "{} ({}), operand {operand}: lengths", D::NAME, case.name);
    let differs = |i: &usize| want[*i] != got[*i];
    let byte = (0..want.len()).find(differs).expect("unequal slices of one length differ somewhere");
    let around = |bytes: &[u8]| -> [u8; 4] {
        std::array::from_fn(|i| bytes.get(byte / 4 * 4 + i).copied().unwrap_or_default())
    };
    Err(Mismatch {
        op: D::NAME,
        case: case.name.clone(),
        operand,
        what,
        byte,
        expected: around(want),
        found: around(got),
        differing: (0..want.len()).filter(differs).count(),
    })
}

/// Bytes per row of each operand; 0 = the same for all rows (weights, tables, states).
struct Cut {
    reads: Vec<usize>,
    writes: Vec<usize>,
}

impl Cut {
    fn of<D: Op>(case: &Case<D>) -> Option<Cut> {
        let shapes = |rows| case.desc.shapes(Dims { rows, ..case.dims });
        let (one, two) = (shapes(1), shapes(2));
        let per_row = |one: usize, two: usize| match two {
            _ if two == one => Some(0),
            _ if two == 2 * one => Some(one),
            _ => None,
        };
        let each = |one: &[crate::Spec], two: &[crate::Spec]| -> Option<Vec<usize>> {
            one.iter().zip(two).map(|(a, b)| per_row(a.bytes, b.bytes)).collect()
        };
        let cut = Cut { reads: each(&one.reads, &two.reads)?, writes: each(&one.writes, &two.writes)? };
        let states_carried =
            cut.writes.iter().zip(&case.in_place).all(|(per_row, kept)| *per_row > 0 || *kept);
        (!one.experts && states_carried && case.rows.len() > 1).then_some(cut)
    }

    /// Runs rows `part` alone and puts what they write into `writes`.
    fn run<D: Op>(
        &self,
        case: &Case<D>,
        exec: &HostExec,
        part: Range<usize>,
        writes: &mut [Vec<u8>],
    ) -> Result<(), Mismatch> {
        let of = |per_row: usize, bytes: &[u8]| match per_row {
            0 => bytes.to_vec(),
            n => bytes[part.start * n..part.end * n].to_vec(),
        };
        let piece = Case {
            rows: case.rows[part.clone()].to_vec(),
            dims: Dims { rows: part.len(), ..case.dims },
            reads: self.reads.iter().zip(&case.reads).map(|(n, r)| of(*n, r)).collect(),
            writes: self.writes.iter().zip(&*writes).map(|(n, w)| of(*n, w)).collect(),
            ..case.clone()
        };
        let done = run(&piece, POISON[1], |args| run_on(&case.desc, exec, args))?;
        for ((per_row, write), done) in self.writes.iter().zip(writes).zip(done) {
            match per_row {
                0 => *write = done,
                n => write[part.start * n..part.end * n].copy_from_slice(&done),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
