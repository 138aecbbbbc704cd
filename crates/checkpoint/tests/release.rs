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
    let mut out = vec![0.0; 64 * COLUMNS];
    let mut pass = |release: bool| {
        let mut most = 0;
        for start in (0..ROWS).step_by(64) {
            model.read_rows("w", start..start + 64, &mut out).unwrap();
            assert_eq!(out[63 * COLUMNS].to_bits() >> 16, start as u32 + 63);
            most = most.max(mapped().saturating_sub(before));
            if release {
                model.release("w", start..start + 64);
            }
        }
        most
    };
    let size = (2 * ROWS * COLUMNS) as u64;
    let most = pass(true);
    assert!(most < size / 8, "{most} of {size} bytes stayed mapped");
    let kept = pass(false);
    assert!(
        kept > size / 2,
        "without release only {kept} of {size} bytes were mapped: the test measures nothing"
    );
    model.release("w", 0..ROWS);
    assert!(mapped().saturating_sub(before) < size / 8);
}
