//! Models that are only a configuration and a cache.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arch::{EntryKind, Manifest, Part, Profile, Role};
use base::LayerId;
use checkpoint::Checkpoint;
use engine::{Engine, Observer, Options, Wanted};
use weights::{Cache, Key};
use zerocopy::FromBytes;

use super::*;

const SEED: u64 = 11;

fn small(named: Named) -> Shape {
    let choice = ShapeChoice {
        hidden: Some(256),
        layers: Some(4),
        experts: Some(8),
        top_k: Some(2),
        inter: Some(72),
        heads: Some(4),
        kv_heads: Some(2),
        head_dim: Some(64),
        vocab: Some(1000),
        key_heads: Some(2),
        value_heads: Some(4),
        linear_dim: Some(64),
        ..ShapeChoice::default()
    };
    named.cut(&choice).unwrap()
}

fn made(shape: &Shape, seed: u64, home: &Path, name: &str, threads: usize) -> Made {
    let recipe = Profile::Default.recipe();
    let folder = home.join("models").join(name);
    make(shape, seed, &recipe, &folder, home, threads, &|_| (), &AtomicBool::new(false)).unwrap()
}

#[test]
fn bytes_depend_on_shape_and_seed_and_not_on_threads_runs_or_names() {
    let home = tempfile::tempdir().unwrap();
    let shape = small(Named::Qwen3CoderNext);
    let bytes = |seed, name, threads| {
        let made = made(&shape, seed, home.path(), name, threads);
        assert!(made.written && made.gb_s_per_thread > 0.0);
        std::fs::read(made.cache).unwrap()
    };
    let one = bytes(SEED, "one", 1);
    assert!(one == bytes(SEED, "two", 2) && one == bytes(SEED, "again", 2));
    let other = bytes(SEED + 1, "other", 2);
    let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
    assert!(one.len() == other.len() && same * 3 < one.len(), "{same} of {}", one.len());
}

#[test]
fn a_made_model_is_there_for_each_recipe_and_a_strangers_folder_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let shape = small(Named::Qwen330bA3b);
    let first = made(&shape, SEED, home.path(), "m", 1);
    let again = made(&shape, SEED, home.path(), "m", 1);
    assert!(first.written && !again.written && first.cache == again.cache);
    assert_eq!(first.routing, again.routing);
    let cancel = AtomicBool::new(false);
    let reference = Profile::Reference.recipe();
    let with = |seed, cancel: &AtomicBool| {
        make(&shape, seed, &reference, &first.folder, home.path(), 1, &|_| (), cancel)
    };
    let error = with(SEED, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, base::Error::Refused(Refusal::Cancelled)), "{error}");
    assert_eq!(std::fs::read_dir(home.path().join("cache")).unwrap().count(), 2, "a cache and a lock");
    let error = with(SEED + 1, &cancel).unwrap_err().to_string();
    assert!(error.contains("out") && error.contains("the same model's"), "{error}");
    assert_ne!(with(SEED, &cancel).unwrap().cache, first.cache);
    assert_eq!(std::fs::read_dir(home.path().join("models")).unwrap().count(), 1);
}

/// What a router chose at a position.
struct Choice {
    layer: LayerId,
    position: u32,
    ids: Vec<u32>,
}

/// Remembers what routers chose.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Choice>>>);

impl Observer for Seen {
    fn router(&mut self, layer: LayerId, rows: &[ops::Row], top_k: usize, ids: &[u32], weights: &[f32]) {
        let mut seen = self.0.lock().unwrap();
        for (row, (ids, weights)) in rows.iter().zip(ids.chunks(top_k).zip(weights.chunks(top_k))) {
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5, "the router renormalises");
            seen.push(Choice { layer, position: row.pos, ids: ids.to_vec() });
        }
    }
}

#[test]
fn a_made_model_loads_decodes_and_routes_as_its_table_says() {
    for named in Named::ALL {
        let home = tempfile::tempdir().unwrap();
        let made = made(&small(named), SEED, home.path(), "m", 2);
        let recipe = Profile::Default.recipe();
        let checkpoint = Checkpoint::open(&made.folder).unwrap();
        let model = arch::read(&checkpoint).unwrap();
        assert_eq!((&model.unread_keys[..], &model.unused_tensors[..]), (&[][..], &[][..]));
        let manifest = Manifest::new(&model, &recipe);
        let key = Key::of(&checkpoint, &recipe);
        let open = || Cache::open(&made.cache, &key).unwrap();
        let cache = open();
        assert_eq!(cache.verify(&|_, _| ()).damaged, Vec::<String>::new());
        let held = manifest.dense.iter().filter(|e| matches!(e.kind, EntryKind::Table { .. })).count();
        assert_eq!((held, made.routing.layers), (4, 4));

        let options = Options { chunk: 8, threads: 2, ..Options::new(64) };
        let mut engine = Engine::load(model, recipe, Box::new(open()), options).unwrap();
        let seen = Seen::default();
        engine.observe(Some(Box::new(seen.clone())));
        let (cancel, seq) = (AtomicBool::new(false), engine.begin().unwrap());
        let spread = |row: &[f32]| row.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let mut largest = 0.0f32;
        let sink = &mut |_, _, row: &[f32]| {
            largest = largest.max(spread(row));
            Ok(())
        };
        engine.prefill(seq, &[5; 13], Wanted::Last, &cancel, sink).unwrap();
        for token in [1, 999, 0] {
            engine.step(&[(seq, token)], &cancel, sink).unwrap();
        }
        assert!(largest > 0.5 && largest < 20.0, "logits of about 1: {largest}");
        let seen = seen.0.lock().unwrap();
        assert_eq!(seen.len(), 4 * 16);
        for Choice { layer, position, ids } in seen.iter() {
            let role = Role::of(layer.0 as usize, Part::RouterTable);
            let table = <[u32]>::ref_from_bytes(cache.dense(role)).unwrap();
            assert_eq!(ids[..], table[2 * *position as usize..][..2], "layer {layer}, position {position}");
        }
    }
}

#[test]
fn published_shapes_have_their_published_size() {
    for (named, billions) in [(Named::Qwen330bA3b, 30.5), (Named::Qwen3CoderNext, 79.7)] {
        let shape = named.cut(&ShapeChoice::default()).unwrap();
        assert!((shape.bytes() as f64 / 2e9 - billions).abs() < 0.1, "{} {}", named.name(), shape.bytes());
        let cut = ShapeChoice { layers: Some(4), experts: Some(16), ..ShapeChoice::default() };
        let cut = named.cut(&cut).unwrap();
        assert_eq!((cut.layers, cut.experts, cut.top_k), (4, 16, shape.top_k));
    }
    let few = ShapeChoice { experts: Some(4), ..ShapeChoice::default() };
    let error = Named::Qwen330bA3b.cut(&few).unwrap_err().to_string();
    assert!(error.starts_with("top-k"), "{error}");
    let size = ShapeChoice { size_bytes: Some(1 << 30), ..ShapeChoice::default() };
    assert!(Named::Qwen330bA3b.cut(&size).is_err());
}
