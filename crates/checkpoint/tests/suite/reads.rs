//! Rows of tensors as f32: exact values, tiles of F8 weights, faults of partners; identity.

use std::collections::BTreeMap;
use std::path::Path;

use base::FileFault;
use checkpoint::safetensors::Writer;
use checkpoint::{Checkpoint, Dtype};

use crate::build::{assert_words, folder, vectors, write};

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// A folder with one file of these tensors.
fn model(tensors: &[Tensor]) -> tempfile::TempDir {
    let out = folder(&[]);
    let declared: Vec<_> = tensors.iter().map(|(n, d, s, _)| (n.to_string(), *d, s.clone())).collect();
    let path = out.path().join("model.safetensors");
    let mut writer = Writer::create(&path, &declared, &BTreeMap::new()).unwrap();
    for (name, _, _, bytes) in tensors {
        writer.write(name, bytes).unwrap();
    }
    writer.finish().unwrap();
    out
}

fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn read(model: &Checkpoint, name: &str, rows: std::ops::Range<usize>) -> base::Result<Vec<f32>> {
    let mut out = vec![f32::NAN; rows.len() * model.tensor(name).map_or(0, |t| t.columns())];
    model.read_rows(name, rows, &mut out)?;
    Ok(out)
}

#[test]
fn rows_are_exact() {
    let half = |v: f32| half::f16::from_f32(v).to_le_bytes();
    let bf = |v: f32| half::bf16::from_f32(v).to_le_bytes();
    let values = [1.0, -2.5, 0.0, 65504.0, 6.1035156e-5, f32::INFINITY];
    let folder = model(&[
        ("one_byte", Dtype::U8, vec![1], vec![9]),
        ("bf", Dtype::Bf16, vec![3, 1, 2], [1.0, -2.5, 0.0, 3.140625, 1e38, -1e-38].map(bf).concat()),
        ("half", Dtype::F16, vec![3, 2], values.map(half).concat()),
        ("single", Dtype::F32, vec![2, 3], f32_bytes([1e-40, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("vector", Dtype::F32, vec![2], f32_bytes([7.0, 8.0])),
        ("scalar", Dtype::F32, vec![], f32_bytes([9.0])),
        ("empty", Dtype::F32, vec![0, 4], vec![]),
    ]);
    let m = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(read(&m, "half", 0..3).unwrap(), values);
    assert_eq!(read(&m, "half", 1..2).unwrap(), [0.0, 65504.0]);
    let rounded = |v: f32| half::bf16::from_f32(v).to_f32();
    assert_eq!(read(&m, "bf", 1..3).unwrap(), [0.0, 3.140625, rounded(1e38), rounded(-1e-38)]);
    assert_eq!(read(&m, "single", 0..2).unwrap(), [1e-40, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(read(&m, "vector", 0..1).unwrap(), [7.0, 8.0]);
    assert_eq!(read(&m, "scalar", 0..1).unwrap(), [9.0]);
    assert_eq!(read(&m, "empty", 0..0).unwrap(), [0f32; 0]);
    m.release("single", 0..2);
    m.release("no.such", 0..2);
    assert_eq!(read(&m, "single", 1..2).unwrap(), [4.0, 5.0, 6.0]);
    let error = read(&m, "one_byte", 0..1).unwrap_err();
    assert_eq!(error.fault(), Some(FileFault::WrongDtype));
    assert_words(&error.to_string(), &["model.safetensors", "tensor one_byte", "BF16, F16, F32", "found U8"]);
}

/// A stack of two matrices of 130 × 200: partial tiles on both edges.
#[test]
fn f8_tiles_are_scaled() {
    const STACK: usize = 2;
    let (height, width, down, across) = (130, 200, 2, 2);
    let codes: Vec<u8> =
        (0..STACK * height * width).map(|i| (i % 0x7f) as u8 | ((i % 2) << 7) as u8).collect();
    let scales: Vec<f32> = (0..STACK * down * across).map(|i| 0.5 + i as f32 / 3.0).collect();
    let bf: Vec<u8> = scales.iter().flat_map(|&s| half::bf16::from_f32(s).to_le_bytes()).collect();
    let folder = model(&[
        ("w", Dtype::F8E4M3, vec![STACK, height, width], codes.clone()),
        ("w_scale_inv", Dtype::F32, vec![STACK, down, across], f32_bytes(scales.clone())),
        ("v", Dtype::F8E4M3, vec![height, width], codes[..height * width].to_vec()),
        ("v_scale_inv", Dtype::Bf16, vec![down, across], bf[..2 * down * across].to_vec()),
    ]);
    let m = Checkpoint::open(folder.path()).unwrap();
    let expected = |row: usize, column: usize| {
        let scale = scales[(row / height * down + row % height / 128) * across + column / 128];
        checkpoint::dtype::F8_E4M3_VALUES[usize::from(codes[row * width + column])] * scale
    };
    for rows in [0..STACK * height, 0..1, 127..129, 129..131, 257..260, 5..5] {
        let got = read(&m, "w", rows.clone()).unwrap();
        let wanted: Vec<f32> =
            rows.flat_map(|r| (0..width).map(move |c| (r, c))).map(|(r, c)| expected(r, c)).collect();
        assert_eq!(got, wanted);
    }
    let got = read(&m, "v", 129..130).unwrap();
    let scale = half::bf16::from_f32(scales[3]).to_f32();
    let code = codes[129 * width + 199];
    assert_eq!(got[199], checkpoint::dtype::F8_E4M3_VALUES[usize::from(code)] * scale);
}

#[test]
fn f8_without_good_scales_is_refused() {
    let weight = || ("w", Dtype::F8E4M3, vec![3, 4], vec![0x38; 12]);
    let check = |tensors: &[Tensor], fault, words: &[&str]| {
        let folder = model(tensors);
        let error = read(&Checkpoint::open(folder.path()).unwrap(), "w", 0..1).unwrap_err();
        assert_eq!(error.fault(), Some(fault), "{error}");
        assert_words(&error.to_string(), &["model.safetensors", "tensor w", "expected", "found"]);
        assert_words(&error.to_string(), words);
    };
    check(&[weight()], FileFault::MissingTensor, &["w_scale_inv"]);
    let partner = |dtype, shape: Vec<usize>, bytes| [weight(), ("w_scale_inv", dtype, shape, bytes)];
    check(&partner(Dtype::F32, vec![1], vec![0; 4]), FileFault::WrongShape, &["[1, 1]", "found [1]"]);
    check(&partner(Dtype::F32, vec![1, 2], vec![0; 8]), FileFault::WrongShape, &["[1, 1]", "found [1, 2]"]);
    check(&partner(Dtype::U8, vec![1, 1], vec![0]), FileFault::WrongDtype, &["F32, BF16 or F16", "found U8"]);
    check(&[("w", Dtype::F8E4M3, vec![4], vec![0; 4])], FileFault::WrongShape, &["two or more", "[4]"]);
}

#[test]
fn identity_follows_content() {
    let one = vectors(&["x", "y"]);
    let base_folder = folder(&[("model.safetensors", &one)]);
    let identity = |folder: &Path| Checkpoint::open(folder).unwrap().identity();
    let first = identity(base_folder.path());
    let other = folder(&[("model.safetensors", &one), ("README.md", b"not part of it")]);
    assert_eq!(identity(other.path()), first);
    write(other.path(), "config.json", br#"{"model_type": "test", "eos_token_id": 8}"#);
    assert_ne!(identity(other.path()), first);
    let mut flipped = one.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert_ne!(identity(folder(&[("model.safetensors", &flipped)]).path()), first);
    assert_ne!(identity(folder(&[("model.safetensors", &vectors(&["x", "z"]))]).path()), first);
    assert_ne!(identity(folder(&[("model-1.safetensors", &one)]).path()), first);
    // A file above the sampling threshold: first and last page are among the samples.
    let large = |edit: usize| {
        let mut bytes = vec![0u8; 1 << 20];
        let last = bytes.len() - 1;
        bytes[edit.min(last)] = 1;
        identity(model(&[("x", Dtype::U8, vec![1 << 20], bytes)]).path())
    };
    assert_eq!(large(17), large(17));
    assert_ne!(large(17), large(18));
    assert_ne!(large(usize::MAX), large(17));
}
