//! Runs cases of ops at any level.

use ops::{Case, Experts, HostArgs, HostExec, Level, Op, Reads, Row, Writes};

/// The written operands after a run over some of the case's rows: `reads` are the rows' own.
pub fn run<O: Op>(
    desc: &O,
    exec: &HostExec,
    rows: &[Row],
    context: usize,
    reads: &[&[u8]],
    writes: &mut [Vec<u8>],
) {
    let args = HostArgs {
        rows,
        context,
        reads: Reads(reads.iter().copied().collect()),
        writes: Writes(writes.iter_mut().map(|w| &mut w[..]).collect()),
        experts: Experts::default(),
    };
    match exec.level {
        Level::Scalar => desc.reference(args),
        _ => exec.install(|| desc.simd(exec, args)),
    }
}

/// Written operands of a case; those that carry no input are poisoned first.
pub fn run_case<O: Op>(case: &Case<O>, exec: &HostExec) -> Vec<Vec<u8>> {
    let mut writes = case.writes.clone();
    for (write, in_place) in writes.iter_mut().zip(&case.in_place) {
        if !in_place {
            write.fill(0xA5);
        }
    }
    let reads: Vec<&[u8]> = case.reads.iter().map(|r| &r[..]).collect();
    run(&case.desc, exec, &case.rows, case.dims.context, &reads, &mut writes);
    writes
}
