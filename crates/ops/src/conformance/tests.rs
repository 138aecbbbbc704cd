//! Tests of the check itself: ops that err on purpose.

use base::Refusal;

use super::*;
use crate::{Cost, Row, Shapes, spec, specs};

/// Copies `width` floats a row, and does wrong as its mode says where it is not the definition.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Copy {
    wrong: Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    LeavesOne,
    WritesBehind,
    ReadsBehind,
    CountsRows,
}

const WIDTH: usize = 5;

impl Copy {
    fn copy(&self, mut args: HostArgs<'_>, wrong: Wrong) {
        let n = args.rows.len() * WIDTH;
        let x = args.reads.f32(0, n + 1);
        let y = args.writes.f32(0, n + 1);
        let end = if wrong == Wrong::LeavesOne { n - 1 } else { n };
        y[..end].copy_from_slice(&x[..end]);
        match wrong {
            Wrong::WritesBehind => y[n] = 0.0,
            Wrong::ReadsBehind => y[0] = x[n],
            Wrong::CountsRows => y[0] = args.rows.len() as f32,
            _ => {}
        }
    }
}

impl Op for Copy {
    const NAME: &'static str = "copy";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }
    fn shapes(&self, d: Dims) -> Shapes {
        let bytes = 4 * d.rows * WIDTH;
        Shapes { reads: specs([spec("x", bytes)]), writes: specs([spec("y", bytes)]), experts: false }
    }
    fn cost(&self, d: Dims) -> Cost {
        self.shapes(d).cost(0, 0)
    }
    fn cases() -> Vec<Case<Self>> {
        let named = ["a", "b", "c", "d", "e"];
        let x = Inputs::new(1).normal(3 * WIDTH);
        named.map(|n| Case::new(n, Copy { wrong: Wrong::Nothing }, 3).read(&x).output()).to_vec()
    }
    fn reference(&self, args: HostArgs<'_>) {
        let wrong = if self.wrong == Wrong::CountsRows { self.wrong } else { Wrong::Nothing };
        self.copy(args, wrong);
    }
    fn simd(&self, _exec: &HostExec, args: HostArgs<'_>) {
        self.copy(args, self.wrong);
    }
}

fn result(wrong: Wrong) -> Result<(), Mismatch> {
    let exec = HostExec::new(Level::detect(), 1);
    let mut case = Copy::cases().remove(0);
    case.desc.wrong = wrong;
    check(&case, &exec, None).and_then(|()| check_rows(&case, &exec).expect("it is an op of rows"))
}

#[test]
fn the_check_finds_what_an_op_can_do_wrong() {
    assert_eq!(result(Wrong::Nothing), Ok(()));
    if Level::detect() == Level::Scalar {
        return; // The wrong code would not run.
    }
    let last = 4 * (3 * WIDTH - 1);
    let found = |wrong| result(wrong).map_err(|e| (e.what, e.byte));
    assert_eq!(found(Wrong::LeavesOne), Err((What::Result, last)));
    assert_eq!(found(Wrong::WritesBehind), Err((What::Guard, 0)));
    assert_eq!(found(Wrong::ReadsBehind).map_err(|e| e.0), Err(What::Result));
    assert_eq!(found(Wrong::CountsRows).map_err(|e| e.0), Err(What::Rows));
}

#[test]
fn every_bit_of_an_output_counts() {
    let exec = HostExec::new(Level::detect(), 1);
    let case = &Copy::cases()[0];
    for bit in 0..8 * 4 * 3 * WIDTH {
        let e = check(case, &exec, Some(Fault { operand: 0, bit })).expect_err("a flipped bit");
        assert_eq!((e.byte, e.differing), (bit / 8, 1));
    }
    let e = check(case, &exec, Some(Fault { operand: 0, bit: 77 })).expect_err("a flipped bit").to_string();
    assert!(e.starts_with("copy (a), operand y differs from the definition: byte 9 (element 2"), "{e}");
}

#[test]
fn rows_of_runs() {
    let row = |seq, pos| Row { seq, pos };
    assert_eq!(rows(&[(3, 8, 2), (0, 0, 1)]), [row(3, 8), row(3, 9), row(0, 0)]);
}
