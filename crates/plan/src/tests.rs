//! Plans of both small models and of published configurations.

use std::path::Path;

use arch::{Manifest, Profile, Program};

use crate::{Ask, Plan, plan};

struct Case {
    name: &'static str,
    program: Program,
    manifest: Manifest,
}

impl Case {
    fn new(name: &'static str, config: &Path) -> Case {
        let model = arch::read_bare(config).unwrap();
        let recipe = Profile::Default.recipe();
        Case {
            name,
            program: arch::lower(&model, &recipe).unwrap(),
            manifest: Manifest::new(&model, &recipe),
        }
    }

    fn plan(&self, ask: &Ask) -> Result<Plan, base::Refusal> {
        plan(&self.program, &self.manifest, ask)
    }
}

fn cases() -> Vec<Case> {
    let fixture = |name: &'static str| Case::new(name, &testdata::fixture(name).join("config.json"));
    ["qwen3_moe", "qwen3_next", "tiny-qwen3-next"].map(fixture).into()
}

#[test]
fn the_minimum_is_accepted_and_one_byte_less_refused_with_the_table() {
    for case in cases() {
        let large = case.plan(&Ask { capacity: Some(u64::MAX), ..Ask::new(4096) }).unwrap();
        let of = |bytes| case.plan(&Ask { capacity: Some(bytes), ..Ask::new(4096) });
        let least = of(large.minimum_bytes).unwrap();
        assert_eq!(least.total_bytes(), large.minimum_bytes, "{}", case.name);
        let error = of(large.minimum_bytes - 1).unwrap_err().to_string();
        for word in ["vram", "workspace", "slots", &large.minimum_bytes.to_string()] {
            assert!(error.contains(word), "{}: {error}", case.name);
        }
    }
}
