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
        let dims = ops::Dims { rows: 7, context: 96, sequences: 2 };
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
                        assert_eq!(2 * state.sequence_bytes(96), spec.bytes, "{}", step.name);
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

#[test]
fn the_manifest_matches_the_weights_the_program_reads() {
    use crate::Operand;
    let model = model("qwen3_next", "config.json");
    let recipe = Profile::Default.recipe();
    let (manifest, program) = (Manifest::new(&model, &recipe), lower(&model, &recipe).unwrap());
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
