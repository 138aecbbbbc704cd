//! The writer makes files that the reader accepts, under their name only when they are whole.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use checkpoint::Dtype;
use checkpoint::safetensors::{File, Writer};

fn declared(names: &[(&str, Dtype, &[usize])]) -> Vec<(String, Dtype, Vec<usize>)> {
    names.iter().map(|(n, d, s)| (n.to_string(), *d, s.to_vec())).collect()
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.safetensors");
    let tensors = declared(&[
        ("first \"quoted\"", Dtype::F32, &[2, 2]),
        ("none", Dtype::F32, &[0]),
        ("ids", Dtype::I64, &[3]),
        ("last", Dtype::I32, &[1]),
        ("none either", Dtype::U8, &[4, 0]),
    ]);
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    let mut writer = Writer::create(&path, &tensors, &metadata).unwrap();
    writer.write_f32("first \"quoted\"", &[1.0, 2.0, 3.0]).unwrap();
    writer.write_f32("first \"quoted\"", &[4.0]).unwrap();
    writer.write("ids", &[5i64, -6, 7].map(i64::to_le_bytes).concat()).unwrap();
    writer.write("last", &(-8i32).to_le_bytes()).unwrap();
    assert!(!path.exists());
    writer.finish().unwrap();
    let file = File::open(&path).unwrap();
    assert_eq!(file.f32("first \"quoted\"").unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(file.i64("ids").unwrap(), [5, -6, 7]);
    assert_eq!(file.i64("last").unwrap(), [-8]);
    assert_eq!(file.f32("none").unwrap(), [0f32; 0]);
    assert_eq!(file.metadata()["format"], "pt");
    assert_eq!(file.tensor("first \"quoted\"").unwrap().span.start % 8, 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.safetensors");
    let tensors = declared(&[("a", Dtype::U8, &[4])]);
    let start = || Writer::create(&path, &tensors, &BTreeMap::new()).unwrap();
    drop(start());
    let misuses: [fn(Writer); 4] = [
        |mut w| w.write("a", &[0; 5]).unwrap(),
        |mut w| w.write("b", &[0; 4]).unwrap(),
        |mut w| {
            w.write("a", &[0; 3]).unwrap();
            w.finish().unwrap();
        },
        |mut w| {
            w.write("a", &[0; 4]).unwrap();
            w.write("a", &[0]).unwrap();
        },
    ];
    for misuse in misuses {
        let writer = start();
        assert!(catch_unwind(AssertUnwindSafe(|| misuse(writer))).is_err());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = folder.path().join("no/out.safetensors");
    let error = Writer::create(&nowhere, &tensors, &BTreeMap::new()).err().unwrap().to_string();
    assert!(error.contains("can't create") && error.contains("out.safetensors"), "{error}");
}
