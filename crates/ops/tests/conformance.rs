//! Every op: SIMD against the definition by bytes, rows in pieces, and a planted error in every output.
//!
//! `cargo test -p ops --test conformance -- --nocapture OP` prints what was run for one op.

macro_rules! conformance_of {
    ($module:ident) => {
        mod $module {
            #[test]
            fn writes_the_defined_bytes() {
                match ops::conformance::check_op::<ops::$module::Desc>() {
                    Ok(report) => println!("{report}"),
                    Err(e) => panic!("{e}"),
                }
            }

            #[test]
            fn a_planted_error_is_caught() {
                if let Err(e) = ops::conformance::check_faults::<ops::$module::Desc>() {
                    panic!("{e}");
                }
            }
        }
    };
}

ops::for_each_op!(conformance_of);
