use std::collections::BTreeSet;

use checkpoint::Checkpoint;

use super::*;

fn small(family: Family) -> Shape {
    ShapeChoice { size_bytes: Some(12 << 20), ..ShapeChoice::default() }.resolve(family).unwrap()
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

#[test]
fn folders_are_read_as_their_family_without_anything_left_over() {
    for family in Family::ALL {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let shape = small(family);
        let mut seen = 0;
        let written = write(&shape, 1, &path, 5 << 20, &never(), &mut |bytes| seen = bytes).unwrap();
        assert_eq!((seen, written.bytes), (shape.bytes(), shape.bytes()));
        assert!(written.shards >= 3, "{} shards", written.shards);
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.total_bytes(), shape.bytes());
        let model = arch::read(&checkpoint).unwrap();
        assert_eq!((model.family, model.layers.len()), (family.name(), shape.layers));
        assert_eq!((&model.unread_keys[..], &model.unused_tensors[..]), (&[][..], &[][..]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside the model");
    }
}

#[test]
fn content_depends_on_the_seed_and_not_on_shards() {
    let folder = tempfile::tempdir().unwrap();
    let shape = small(Family::Qwen3Moe);
    let read = |name: &str, seed, shard_bytes| {
        let path = folder.path().join(name);
        write(&shape, seed, &path, shard_bytes, &never(), &mut |_| ()).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        checkpoint.bytes("model.layers.0.mlp.experts.3.down_proj.weight").unwrap().to_vec()
    };
    let (one, many, other) = (read("one", 5, 1 << 40), read("many", 5, 1 << 20), read("other", 6, 1 << 40));
    assert!(one == many && one != other);
    assert!(folder.path().join("one/model.safetensors").is_file());
    let bytes: BTreeSet<u8> = one.iter().copied().collect();
    assert!(bytes.len() > 100, "it is not constant");
}

#[test]
fn what_is_cancelled_or_in_the_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let shape = small(Family::Qwen3Moe);
    let cancel = never();
    let mut stop = |_| cancel.store(true, Ordering::Relaxed);
    let error = write(&shape, 1, &path, SHARD_BYTES, &cancel, &mut stop).unwrap_err();
    assert!(matches!(error, base::Error::Refused(Refusal::Cancelled)), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("precious"), "x").unwrap();
    let error = write(&shape, 1, &path, SHARD_BYTES, &never(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, base::Error::Refused(Refusal::Value { .. })), "{error}");
    assert!(path.join("precious").is_file());
}

#[test]
fn sizes_are_met_and_given_dimensions_kept() {
    for family in Family::ALL {
        for size in [30 << 20, 1 << 30, 8 << 30, 60 << 30u64] {
            let choice = ShapeChoice { size_bytes: Some(size), ..ShapeChoice::default() };
            let shape = choice.resolve(family).unwrap();
            assert!(shape.bytes().abs_diff(size) < size / 20, "{size}: {} {shape:?}", shape.bytes());
        }
    }
    let choice = ShapeChoice {
        size_bytes: Some(2 << 30),
        hidden: Some(2048),
        experts: Some(32),
        vocab: Some(8192),
        ..ShapeChoice::default()
    };
    let shape = choice.resolve(Family::Qwen3Moe).unwrap();
    assert_eq!((shape.hidden, shape.experts, shape.vocab), (2048, 32, 8192));
    let listed: u64 = shape.tensors().iter().map(Tensor::bytes).sum();
    assert_eq!(listed, shape.bytes());
}

#[test]
fn impossible_shapes_are_refused_by_name() {
    let base = ShapeChoice::default();
    for (choice, word) in [
        (ShapeChoice { top_k: Some(200), experts: Some(100), ..base.clone() }, "top-k"),
        (ShapeChoice { heads: Some(6), kv_heads: Some(4), ..base.clone() }, "kv-heads"),
        (ShapeChoice { hidden: Some(0), ..base.clone() }, "hidden"),
        (ShapeChoice { layers: Some(1 << 30), ..base.clone() }, "layers"),
        (ShapeChoice { size_bytes: Some(1 << 20), ..base.clone() }, "size"),
        (ShapeChoice { size_bytes: Some(1 << 30), layers: Some(1), experts: Some(2), ..base }, "size"),
    ] {
        let error = choice.resolve(Family::Qwen3Moe).unwrap_err().to_string();
        assert!(error.starts_with(word), "{error}");
    }
}
