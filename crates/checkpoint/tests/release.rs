//! Reading a large file does not keep it in memory. Alone in its binary, because it measures the process.

use std::collections::BTreeMap;

use base::os::status_bytes;
use checkpoint::safetensors::Writer;
use checkpoint::{Checkpoint, Dtype};

const ROWS: usize = 4096;
const COLUMNS: usize = 4095; // rows that do not end with pages

#[test]
fn released_rows_leave_the_process() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let declared = [("w".to_string(), Dtype::Bf16, vec![ROWS, COLUMNS])];
    let path = folder.path().join("model.safetensors");
    let mut writer = Writer::create(&path, &declared, &BTreeMap::new()).unwrap();
    for row in 0..ROWS {
        writer.write("w", &(row as u16).to_le_bytes().repeat(COLUMNS)).unwrap();
    }
    writer.finish().unwrap();

    let model = Checkpoint::open(folder.path()).unwrap();
    let mapped = || status_bytes("RssFile").expect("a system that counts mapped files");
    let before = mapped();
    // Row by row, two pages each: a release that kept the page shared with the neighbour would keep half.
    let mut out = vec![0.0; COLUMNS];
    let mut pass = |release: bool| {
        for row in 0..ROWS {
            model.read_rows("w", row..row + 1, &mut out).unwrap();
            assert_eq!(out[COLUMNS - 1].to_bits() >> 16, row as u32);
            if release {
                model.release("w", row..row + 1);
            }
        }
        mapped().saturating_sub(before)
    };
    let size = (2 * ROWS * COLUMNS) as u64;
    let stayed = pass(true);
    assert!(stayed < size / 8, "{stayed} of {size} bytes stayed mapped");
    let kept = pass(false);
    assert!(
        kept > size / 2,
        "without release only {kept} of {size} bytes were mapped: the test measures nothing"
    );
    model.release("w", 0..ROWS);
    assert!(mapped().saturating_sub(before) < size / 8);
}
