//! Checkpoints that are not what the configuration promises: found before anything is written.

use std::collections::BTreeMap;
use std::path::Path;

use arch::{EntryKind, Manifest, Profile};
use base::{Error, FileFault};
use checkpoint::safetensors::Writer;
use checkpoint::{Checkpoint, Dtype};

use super::Fixture;

/// A tensor of a checkpoint: type, shape, bytes.
type Tensor = (Dtype, Vec<usize>, Vec<u8>);

/// Copies the qwen3_moe fixture with an edit of its tensors, and builds under a manifest of the original.
fn build_edited(edit: impl FnOnce(&mut BTreeMap<String, Tensor>)) -> Result<(), Error> {
    let original = testdata::fixture("qwen3_moe");
    let checkpoint = Checkpoint::open(&original).unwrap();
    let manifest = Manifest::new(&arch::read(&checkpoint).unwrap(), &Profile::Default.recipe());
    let tensors = checkpoint.tensors().map(|t| {
        (t.name.to_string(), (t.dtype, t.shape.clone(), checkpoint.bytes(&t.name).unwrap().to_vec()))
    });
    let mut tensors: BTreeMap<String, Tensor> = tensors.collect();
    edit(&mut tensors);
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(original.join("config.json"), folder.path().join("config.json")).unwrap();
    write(&folder.path().join("model.safetensors"), &tensors);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let fixture = Fixture { checkpoint, manifest, recipe: Profile::Default.recipe(), folder };
    let path = fixture.path("a.kw");
    let result = fixture.build_quietly(&path, 2);
    assert_eq!(path.exists(), result.is_ok());
    result
}

fn write(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let list: Vec<_> =
        tensors.iter().map(|(name, (d, shape, _))| (name.clone(), *d, shape.clone())).collect();
    let mut writer = Writer::create(path, &list, &BTreeMap::new()).unwrap();
    tensors.iter().for_each(|(name, (_, _, bytes))| writer.write(name, bytes).unwrap());
    writer.finish().unwrap();
}

const UP: &str = "model.layers.1.mlp.experts.3.up_proj.weight";
const NORM: &str = "model.layers.0.input_layernorm.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

#[test]
fn an_unedited_copy_builds() {
    build_edited(|_| ()).unwrap();
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    type Edit = fn(&mut BTreeMap<String, Tensor>);
    let cases: [(&str, Edit, FileFault); 6] = [
        (UP, |t| drop(t.remove(UP)), FileFault::MissingTensor),
        (EMBEDDING, |t| t.get_mut(EMBEDDING).unwrap().1.reverse(), FileFault::WrongShape),
        (UP, |t| grow(t.get_mut(UP).unwrap()), FileFault::WrongShape),
        (NORM, |t| grow(t.get_mut(NORM).unwrap()), FileFault::WrongShape),
        (NORM, |t| shrink(t.get_mut(NORM).unwrap()), FileFault::WrongShape),
        (NORM, |t| t.get_mut(NORM).unwrap().0 = Dtype::I16, FileFault::WrongDtype),
    ];
    for (name, edit, fault) in cases {
        let error = build_edited(edit).unwrap_err();
        assert_eq!(error.fault(), Some(fault), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// One row more.
fn grow(tensor: &mut Tensor) {
    let row: usize = tensor.1[1..].iter().product::<usize>() * tensor.0.bytes();
    tensor.1[0] += 1;
    tensor.2.extend(vec![0; row]);
}

/// One row less.
fn shrink(tensor: &mut Tensor) {
    let row: usize = tensor.1[1..].iter().product::<usize>() * tensor.0.bytes();
    tensor.1[0] -= 1;
    tensor.2.truncate(tensor.2.len() - row);
}

#[test]
fn numbers_that_are_not_finite_are_found_with_file_tensor_and_row() {
    for name in [UP, NORM, EMBEDDING] {
        for bits in [0x7F80u16, 0xFF80, 0x7FC1] {
            let mut row = 0;
            let error = build_edited(|t| {
                let (dtype, shape, bytes) = t.get_mut(name).unwrap();
                assert_eq!(*dtype, Dtype::Bf16);
                let at = bytes.len() / 2 / 2 + 1;
                bytes[2 * at..][..2].copy_from_slice(&bits.to_le_bytes());
                row = if shape.len() == 1 { at } else { at / shape[1] };
            });
            let error = error.unwrap_err();
            assert_eq!(error.fault(), Some(FileFault::NotFinite), "{error}");
            for part in ["model.safetensors", name, &format!("in row {row}")] {
                assert!(error.to_string().contains(part), "{part}: {error}");
            }
        }
    }
}

#[test]
fn an_embedding_that_is_not_bf16_is_refused_not_rounded() {
    let widen = |tensor: &mut Tensor, add: f32| {
        let values = tensor.2.as_chunks::<2>().0.iter();
        let values = values.map(|b| half::bf16::from_le_bytes(*b).to_f32() + add);
        (tensor.0, tensor.2) = (Dtype::F32, values.flat_map(f32::to_le_bytes).collect());
    };
    build_edited(|t| widen(t.get_mut(EMBEDDING).unwrap(), 0.0)).unwrap();
    let error = build_edited(|t| widen(t.get_mut(EMBEDDING).unwrap(), 1e-7)).unwrap_err();
    assert_eq!(error.fault(), Some(FileFault::WrongDtype), "{error}");
}

#[test]
fn a_checkpoint_in_f32_gives_the_same_weights_as_in_bf16() {
    // All values of the fixture are BF16, so only the identity of the source differs.
    let f = Fixture::new("qwen3_moe", Profile::Default);
    f.build_quietly(&f.path("a.kw"), 2).unwrap();
    let tensors = f.checkpoint.tensors().map(|t| {
        let mut values = vec![0.0; t.elements()];
        f.checkpoint.read_rows(&t.name, 0..t.rows(), &mut values).unwrap();
        (
            t.name.to_string(),
            (Dtype::F32, t.shape.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        )
    });
    let tensors: BTreeMap<String, Tensor> = tensors.collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(testdata::fixture("qwen3_moe").join("config.json"), folder.path().join("config.json"))
        .unwrap();
    write(&folder.path().join("model.safetensors"), &tensors);
    let g = Fixture::of(folder.path(), Profile::Default);
    g.build_quietly(&g.path("a.kw"), 2).unwrap();
    let (a, b) = (std::fs::read(f.path("a.kw")).unwrap(), std::fs::read(g.path("a.kw")).unwrap());
    let header = crate::reader::parse_header(&a, a.len() as u64, Path::new("a")).unwrap();
    let start = header.data_start as usize;
    assert_ne!(a[..start], b[..start]);
    assert!(a[start..] == b[start..], "the data is the same");
    assert!(f.manifest.dense.iter().any(|e| matches!(e.kind, EntryKind::Matrix(_))));
}
