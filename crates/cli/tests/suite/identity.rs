//! The same bits however they are computed. The full matrix is a test of the engine; this is what flags
//! reach.

use crate::krasis::krasis;

#[test]
fn flags_of_speed_do_not_change_a_bit() {
    let json = |args: &[&str]| {
        let all = [&["run", "Count from 41 to 47.", "--digest", "--json"], args].concat();
        krasis(&all).json()
    };
    let first = json(&[]);
    let digest = first["digest"].as_str().unwrap();
    assert_eq!(digest.len(), 64);
    let runs: [&[&str]; 5] = [
        &["--chunk", "1"],
        &["--chunk", "7", "--threads", "1"],
        &["--decode-prompt"],
        &["--simd", "scalar", "--chunk", "10"],
        &["--context", "64", "--threads", "3"],
    ];
    for args in runs {
        let other = json(args);
        assert_eq!(other["digest"], digest, "{args:?}");
        assert_eq!(other["token_ids"], first["token_ids"]);
    }
    assert_eq!(json(&["--simd", "scalar"])["stats"]["simd_steps"], 0);
    assert_ne!(json(&["--kv", "k6v6"])["digest"], digest, "another format has other bits");
    assert_ne!(json(&["--acts", "16"])["digest"], digest);
}
