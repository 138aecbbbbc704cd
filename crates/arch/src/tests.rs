//! Programs and manifests of the core fixtures.

use std::path::Path;

use checkpoint::Checkpoint;

use crate::{Manifest, Model, Profile, lower, read};

fn model(fixture: &str, config: &str) -> Model {
    let folder = testdata::fixture(fixture);
    let path = folder.join(config);
    let checkpoint = Checkpoint::open_with_config(&folder, Some(Path::new(&path))).unwrap();
    read(&checkpoint).unwrap()
}

#[test]
fn both_spellings_of_a_config_give_one_program() {
    for fixture in ["qwen3_moe", "qwen3_next"] {
        let (new, hub) = (model(fixture, "config.json"), model(fixture, "config.hub.json"));
        assert_eq!(new, hub, "{fixture}");
        assert_eq!(new.unread_keys, Vec::<String>::new(), "{fixture}");
        assert_eq!(new.unused_tensors, Vec::<String>::new(), "{fixture}");
        for profile in Profile::ALL {
            assert_eq!(lower(&new, &profile.recipe()), lower(&hub, &profile.recipe()));
        }
    }
}

#[test]
fn dimensions_out_of_bounds_are_refused_by_name() {
    use crate::families::{Names, read_config};
    let path = testdata::fixture("qwen3_next").join("config.hub.json");
    let sound = serde_json::Value::Object(checkpoint::json::read_object(&path, 1 << 20).unwrap());
    let read = |key: &str, value: serde_json::Value| {
        let mut changed = sound.clone();
        changed[key] = value;
        let config = checkpoint::Config::from_value(&path, changed).unwrap();
        read_config(&config, &Names::default()).and_then(|m| Ok(lower(&m, &Profile::Default.recipe())?))
    };
    assert!(read("rms_norm_eps", 1e-5.into()).is_ok());
    let huge = serde_json::json!(1u64 << 40);
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "head_dim",
        "num_experts",
        "moe_intermediate_size",
        "intermediate_size",
        "shared_expert_intermediate_size",
        "linear_num_key_heads",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "vocab_size",
        "max_position_embeddings",
    ] {
        for value in [huge.clone(), 0.into()] {
            if (key, &value) == ("intermediate_size", &0.into()) {
                continue; // only layers without experts need it
            }
            let error = read(key, value.clone()).expect_err(key).to_string();
            assert!(error.contains(key), "{key} = {value}: {error}");
        }
    }
    for value in [0.0, -1e-6, 1e-60, 2.0] {
        let error = read("rms_norm_eps", value.into()).unwrap_err().to_string();
        assert!(error.contains("rms_norm_eps"), "{error}");
    }
}

#[test]
fn programs_are_what_they_were() {
    for fixture in ["qwen3_moe", "qwen3_next"] {
        let model = model(fixture, "config.json");
        for profile in [Profile::Default, Profile::Reference] {
            let program = lower(&model, &profile.recipe()).unwrap();
            insta::assert_snapshot!(format!("{fixture}-{}", profile.name()), program.describe());
        }
    }
}

#[test]
fn buffers_are_written_before_they_are_read_and_shapes_fit() {
    use crate::{Operand, Rows};
    for fixture in ["qwen3_moe", "qwen3_next"] {
        let model = model(fixture, "config.json");
        let program = lower(&model, &Profile::Default.recipe()).unwrap();
        let dims = ops::Dims { rows: 7, context: 128, sequences: 2 };
        let mut written = std::collections::BTreeSet::new();
        for step in &program.steps {
            let shapes = step.desc.shapes(dims);
            let experts = usize::from(shapes.experts);
            assert_eq!(shapes.reads.len() + experts, step.reads.len(), "{}", step.name);
            assert_eq!(shapes.writes.len(), step.writes.len(), "{}", step.name);
            for (spec, operand) in shapes.reads.iter().zip(&step.reads) {
                match operand {
                    Operand::Buffer(id) => {
                        assert!(written.contains(id), "{} reads {operand:?} unwritten", step.name);
                        let buffer = &program.buffers[id.0 as usize];
                        assert!((buffer.first..=buffer.last).contains(&step.id));
                        if buffer.rows == Rows::Chunk {
                            assert!(buffer.bytes(7) >= spec.bytes, "{} {}", step.name, spec.name);
                        }
                    }
                    Operand::State(id) => {
                        let state = &program.states[id.0 as usize];
                        assert_eq!(2 * state.sequence_bytes(128), spec.bytes, "{}", step.name);
                    }
                    _ => {}
                }
            }
            written.extend(step.writes.iter().filter_map(|o| match o {
                Operand::Buffer(id) => Some(*id),
                _ => None,
            }));
        }
    }
}

/// A fixture's configuration as that of a synthetic model, of this version.
fn synthetic(fixture: &str, version: u32, names: &crate::families::Names) -> base::Result<Model> {
    let path = testdata::fixture(fixture).join("config.json");
    let mut value = serde_json::Value::Object(checkpoint::json::read_object(&path, 1 << 20).unwrap());
    value["krasis_synth"] = serde_json::json!({"version": version, "seed": 5});
    crate::families::read_config(&checkpoint::Config::from_value(&path, value).unwrap(), names)
}

#[test]
fn only_a_synthetic_model_is_routed_by_a_table() {
    use crate::families::Names;
    use crate::{EntryKind, Operand, Part, Role};
    for fixture in ["qwen3_moe", "qwen3_next"] {
        let made_up = synthetic(fixture, 1, &Names::default()).unwrap();
        assert_eq!(made_up.unread_keys, Vec::<String>::new(), "{fixture}");
        let recipe = Profile::Default.recipe();
        let tables = |model: &Model| {
            let manifest = Manifest::new(model, &recipe);
            let program = lower(model, &recipe).unwrap();
            let routes = program.steps.iter().filter(|s| s.name == "route");
            let is_table = |o: &&Operand| matches!(o, Operand::Weight(Role { part: Part::RouterTable, .. }));
            let read = routes.filter(|s| s.reads.iter().any(|o| is_table(&o))).count();
            let held = manifest.dense.iter().filter(|e| matches!(e.kind, EntryKind::Table { .. })).count();
            (read, held, model.parameters(&manifest))
        };
        let real = model(fixture, "config.json");
        let (of_real, of_made_up) = (tables(&real), tables(&made_up));
        let layers = real.moe_layers().count();
        assert_eq!((of_real.0, of_real.1), (0, 0), "{fixture}");
        assert_eq!(of_made_up, (layers, layers, of_real.2), "{fixture}");

        let tensor = "model.norm.weight";
        let names = Names { tensors: [tensor.to_string()].into() };
        let error = synthetic(fixture, 1, &names).unwrap_err().to_string();
        assert!(error.contains("krasis_synth") && error.contains(tensor), "{error}");
        let error = synthetic(fixture, 2, &Names::default()).unwrap_err().to_string();
        assert!(error.contains("krasis_synth.version"), "{error}");
    }
}

#[test]
fn the_manifest_matches_the_weights_the_program_reads() {
    for made_up in [false, true] {
        check_weights(&match made_up {
            false => model("qwen3_next", "config.json"),
            true => synthetic("qwen3_next", 1, &crate::families::Names::default()).unwrap(),
        });
    }
}

fn check_weights(model: &Model) {
    use crate::Operand;
    let recipe = Profile::Default.recipe();
    let (manifest, program) = (Manifest::new(model, &recipe), lower(model, &recipe).unwrap());
    for step in &program.steps {
        let specs = step.desc.shapes(ops::Dims { rows: 1, context: 1, sequences: 1 }).reads;
        for (spec, operand) in specs.iter().zip(&step.reads) {
            if let Operand::Weight(role) = operand {
                let entry = manifest.dense.iter().find(|e| e.role == *role).unwrap();
                assert_eq!(entry.kind.bytes(), spec.bytes, "{role} of {}", step.name);
            }
        }
    }
}
