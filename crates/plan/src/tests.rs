//! Plans of small models and of published configurations.

use arch::{Manifest, Profile, Program};
use base::philox::Stream;

use crate::{ALIGN, Ask, Plan, Slots, boundaries, plan, table};

struct Case {
    name: &'static str,
    program: Program,
    manifest: Manifest,
}

impl Case {
    fn new(name: &'static str) -> Case {
        let config = match name {
            "qwen3_moe" | "qwen3_next" | "tiny-qwen3-next" => testdata::fixture(name).join("config.json"),
            published => testdata::config(published),
        };
        let model = arch::read_bare(&config).unwrap();
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

    fn experts(&self) -> usize {
        self.manifest.experts.iter().map(|l| l.experts.len()).sum()
    }

    fn layer_experts(&self) -> usize {
        self.manifest.experts.iter().map(|l| l.experts.len()).max().unwrap_or(0)
    }

    /// The smallest capacity for what `ask` serves.
    fn minimum(&self, ask: &Ask) -> u64 {
        self.plan(&Ask { capacity: None, ..*ask }).unwrap().minimum_bytes
    }

    /// Bytes of all experts.
    fn expert_bytes(&self) -> u64 {
        self.manifest.experts.iter().map(|l| (l.experts.len() * l.block.bytes()) as u64).sum()
    }
}

fn cases() -> [Case; 5] {
    ["qwen3_moe", "qwen3_next", "tiny-qwen3-next", "qwen3-30b-a3b", "qwen3-coder-next"].map(Case::new)
}

fn line(plan: &Plan, name: &str) -> u64 {
    plan.lines.iter().find(|l| l.name == name).unwrap().bytes
}

fn slots(plan: &Plan) -> Slots {
    plan.slots.expect("a device with experts")
}

/// An ask that can be met, with up to twice the bytes of all experts above the minimum.
fn random_ask(case: &Case, random: &mut Stream) -> Ask {
    let pick = |random: &mut Stream, of: &[usize]| of[random.below(of.len() as u32) as usize];
    let mut ask = Ask {
        capacity: None,
        context: 1 + random.below(40_000) as usize,
        parallel: 1 + random.below(5) as usize,
        chunk: pick(random, &[1, 2, 7, 64, 512, 2048]),
        head_rows: pick(random, &[1, 8, 32, 4096]),
        pass_rows: pick(random, &[1, 100, 8192, 1 << 20]),
        residency: (random.below(3) == 0).then(|| random.below(101)),
    };
    let share = f64::from(random.below(1 << 20)) / f64::from(1 << 19);
    ask.capacity = Some(case.minimum(&ask) + (share * share / 2.0 * case.expert_bytes() as f64) as u64);
    ask
}

#[test]
fn random_plans_keep_every_rule() {
    for case in cases() {
        let mut random = Stream::new(7);
        let mut staged = 0;
        let mut carried = 0;
        for _ in 0..200 {
            let ask = random_ask(&case, &mut random);
            let plan = case.plan(&ask).unwrap_or_else(|e| panic!("{} {ask:?}: {e}", case.name));
            check_lines(&case, &ask, &plan);
            check_slots(&case, &ask, &plan);
            check_carry(&case, &ask, &plan);
            staged += usize::from(slots(&plan).stage > 0);
            carried += usize::from(plan.carry_bytes > 0);
        }
        assert!(staged > 20 && staged < 200, "{}: {staged} of 200 plans stage", case.name);
        assert!(carried > 0, "{}: no plan carries", case.name);
    }
}

fn check_lines(case: &Case, ask: &Ask, plan: &Plan) {
    let what = || format!("{} {ask:?}\n{}", case.name, table(&plan.lines));
    assert_eq!(Some(plan.total_bytes()), ask.capacity, "{}", what());
    let mut names: Vec<_> = plan.lines.iter().map(|l| l.name).collect();
    names.retain(|n| *n != "held back");
    let expected = ["weights", "tables", "io", "state", "workspace", "carry", "slots", "unused"];
    assert_eq!(names, expected);
    for line in &plan.lines {
        assert!(line.name == "unused" || line.bytes % ALIGN as u64 == 0, "{}", what());
    }
    let mut end = 0;
    for (place, entry) in plan.dense.iter().zip(&case.manifest.dense) {
        assert_eq!((place.role, place.bytes), (entry.role, entry.kind.bytes()));
        assert!(place.offset >= end && place.offset % ALIGN == 0 && place.offset - end < ALIGN);
        end = place.offset + place.bytes;
    }
    assert_eq!(plan.dense.len(), case.manifest.dense.len());
    assert_eq!(line(plan, "weights"), plan.weights_bytes as u64);
    assert_eq!(plan.weights_bytes, end.next_multiple_of(ALIGN));
    assert_eq!(line(plan, "tables"), plan.table_bytes as u64);
    assert!(plan.ids_bytes >= 4 * plan.rows && plan.head_rows_bytes >= 4 * plan.head_rows);
    assert_eq!(line(plan, "io"), (plan.ids_bytes + plan.head_rows_bytes) as u64);
    assert_eq!(line(plan, "state"), plan.states.iter().sum::<usize>() as u64);
    for (bytes, spec) in plan.states.iter().zip(&case.program.states) {
        let needed = ask.parallel * spec.sequence_bytes(plan.context);
        assert!((needed..needed + ALIGN).contains(bytes));
    }
    assert_eq!(line(plan, "workspace"), plan.workspace.total as u64);
    assert_eq!(line(plan, "carry"), plan.carry_bytes as u64);
    assert!(plan.context >= ask.context && plan.rows >= ask.chunk && plan.rows >= ask.parallel);
}

fn check_slots(case: &Case, ask: &Ask, plan: &Plan) {
    let s = slots(plan);
    let (all, largest) = (case.experts(), case.layer_experts());
    let what = || format!("{} {ask:?} {s:?}", case.name);
    assert_eq!(line(plan, "slots"), (s.slot_bytes * s.count) as u64);
    assert_eq!(s.experts, all);
    assert!(case.manifest.experts.iter().all(|l| l.block.bytes() <= s.slot_bytes));
    let minimum = all.min(2 * largest);
    let most = (all * ask.residency.unwrap_or(100) as usize / 100).max(minimum);
    assert!((minimum..=most).contains(&s.count), "{}", what());
    assert_eq!(plan.resident_fraction(), s.count as f64 / all as f64);
    let groups = |g: &usize| 2 * g * largest <= s.count / 4;
    assert_eq!(s.group_layers, (2..=4).rev().find(groups).unwrap_or(1), "{}", what());
    assert_eq!(s.stage, if s.count == all { 0 } else { s.group_layers * largest }, "{}", what());
    let [first, second] = s.stages();
    assert_eq!((first.end, second.end), (second.start, s.count));
    assert_eq!((first.len(), second.len()), (s.stage, s.stage));
    // Nothing lies idle that a slot could use, but for what keeps slots monotone while the carry is small.
    let held = plan.lines.iter().find(|l| l.name == "held back").map_or(0, |l| l.bytes);
    assert!(held == 0 || s.count == most, "{}", what());
    if s.count < all && s.count < most {
        let carry_step = case.plan(&Ask { capacity: Some(1 << 60), residency: Some(0), ..*ask }).unwrap();
        let idle = (s.slot_bytes + 2 * carry_step.carry_chunk_bytes) as u64;
        assert!(line(plan, "unused") < idle, "{}\n{}", what(), table(&plan.lines));
    }
}

fn check_carry(case: &Case, ask: &Ask, plan: &Plan) {
    assert_eq!(plan.pass_rows % ask.chunk, 0);
    let chunks = plan.pass_rows / ask.chunk;
    let wanted = ask.pass_rows.min(ask.context).div_ceil(ask.chunk);
    assert!((1..=wanted).contains(&chunks), "{} {ask:?}", case.name);
    if chunks == 1 {
        assert_eq!((plan.carry_bytes, plan.carry_chunk_bytes), (0, 0));
        return;
    }
    assert_eq!(plan.carry_bytes, chunks * plan.carry_chunk_bytes);
    assert!(plan.carry_bytes as u64 <= (ask.capacity.unwrap() - plan.minimum_bytes) / 8);
    for boundary in boundaries(&case.program) {
        let buffers = boundary.live.iter().map(|id| &case.program.buffers[id.0 as usize]);
        let live: usize = buffers.map(|b| b.bytes(ask.chunk).next_multiple_of(ALIGN)).sum();
        assert!(live <= plan.carry_chunk_bytes);
    }
    let s = slots(plan);
    assert!(s.stage > 0, "{} carries though nothing is streamed", case.name);
}

#[test]
fn the_minimum_is_accepted_and_one_byte_less_refused_with_the_table() {
    for case in cases() {
        let mut random = Stream::new(3);
        for _ in 0..20 {
            let ask = random_ask(&case, &mut random);
            let minimum = case.minimum(&ask);
            let of = |bytes| case.plan(&Ask { capacity: Some(bytes), ..ask });
            let least = of(minimum).unwrap();
            assert_eq!((least.total_bytes(), line(&least, "unused")), (minimum, 0), "{}", case.name);
            assert_eq!((least.carry_bytes, slots(&least).group_layers), (0, 1));
            assert_eq!(slots(&least).count, case.experts().min(2 * case.layer_experts()));
            let error = of(minimum - 1).unwrap_err().to_string();
            for line in least.lines.iter().filter(|l| !["carry", "unused"].contains(&l.name)) {
                let shown = error.lines().any(|l| {
                    let mut words = l.split_whitespace();
                    words.next() == Some(line.name) && words.next() == Some(&line.bytes.to_string())
                });
                assert!(shown, "{}: no {line:?} in {error}", case.name);
            }
            assert!(error.starts_with(&format!("vram: {} bytes", minimum - 1)), "{error}");
            assert!(error.contains(&format!("at least {minimum} bytes")), "{error}");
        }
        assert!(case.plan(&Ask { capacity: Some(0), ..Ask::new(1) }).is_err());
    }
}

#[test]
fn more_capacity_never_means_fewer_slots() {
    for case in cases() {
        let mut random = Stream::new(11);
        for _ in 0..12 {
            let ask = Ask { pass_rows: 1 << 14, ..random_ask(&case, &mut random) };
            let minimum = case.minimum(&ask);
            let mut above: Vec<u64> = (0..60)
                .map(|_| (case.expert_bytes() as f64 * f64::from(random.below(1000)) / 900.0) as u64)
                .collect();
            // Where the carry gains a chunk.
            let chunk = case.plan(&Ask { capacity: Some(1 << 60), residency: Some(0), ..ask }).unwrap();
            let step = 8 * chunk.carry_chunk_bytes as u64;
            above.extend((1..20).flat_map(|n| [n * step, (n * step).saturating_sub(1), n * step + 1]));
            above.sort_unstable();
            let mut last: Option<Plan> = None;
            for bytes in above {
                let plan = case.plan(&Ask { capacity: Some(minimum + bytes), ..ask }).unwrap();
                if let Some(last) = last {
                    assert!(slots(&plan).count >= slots(&last).count, "{} {ask:?} + {bytes}", case.name);
                    let all = slots(&plan).stage == 0;
                    assert!(all || plan.pass_rows >= last.pass_rows, "{} {ask:?}", case.name);
                }
                last = Some(plan);
            }
        }
    }
}

#[test]
fn residency_caps_slots_and_shows_what_it_holds_back() {
    let case = Case::new("qwen3-30b-a3b");
    let of = |percent| {
        let ask = Ask { capacity: Some(1 << 36), residency: percent, ..Ask::new(4096) };
        case.plan(&ask).unwrap()
    };
    let all = of(None);
    assert_eq!((slots(&all).count, slots(&all).stage), (6144, 0));
    assert_eq!(of(Some(100)), all);
    for (percent, count, group) in [(60, 3686, 3), (30, 1843, 1), (50, 3072, 3), (99, 6082, 4)] {
        let plan = of(Some(percent));
        let s = slots(&plan);
        assert_eq!((s.count, s.group_layers, s.stage), (count, group, group * 128), "{percent} %");
        assert_eq!(line(&plan, "held back"), ((6144 - count) * s.slot_bytes) as u64);
        assert_eq!(plan.pass_rows, 4096);
    }
    assert_eq!(slots(&of(Some(0))).count, 256);
    assert_eq!(slots(&of(Some(1))).count, 256);
    let error = case.plan(&Ask { residency: Some(101), ..Ask::new(64) }).unwrap_err().to_string();
    assert!(error.contains("residency: 101 %"), "{error}");
}

#[test]
fn a_host_without_a_limit_copies_no_weights() {
    for case in cases() {
        let plan = case.plan(&Ask { parallel: 600, ..Ask::new(100) }).unwrap();
        assert_eq!((plan.capacity, plan.slots, plan.dense.len()), (None, None, 0));
        assert_eq!((plan.carry_bytes, plan.pass_rows, plan.rows), (0, 512, 600));
        assert_eq!((line(&plan, "weights"), plan.resident_fraction()), (0, 1.0));
        assert!(plan.total_bytes() < plan.minimum_bytes);
        assert_eq!(plan.context, 128);
    }
}

#[test]
fn a_model_without_experts_needs_no_slots() {
    let case = Case::new("dense");
    let ask = Ask { chunk: 16, ..Ask::new(4096) };
    let minimum = case.minimum(&ask);
    let plan = case.plan(&Ask { capacity: Some(minimum + (1 << 30)), ..ask }).unwrap();
    assert_eq!((plan.slots, plan.carry_bytes, line(&plan, "slots")), (None, 0, 0));
    assert_eq!(line(&plan, "unused"), 1 << 30);
    assert!(case.plan(&Ask { capacity: Some(minimum - 1), ..ask }).is_err());
}

#[test]
fn absurd_wishes_are_refused_and_never_overflow() {
    let cases = cases();
    for case in &cases {
        let mut random = Stream::new(5);
        let mut refused = 0;
        for _ in 0..400 {
            let mut number = |usual: usize| match random.below(3) {
                0 => usual,
                1 => (u64::from(random.u32()) << 32 >> random.below(64)) as usize,
                _ => usize::MAX - random.below(200) as usize,
            };
            let ask = Ask {
                capacity: Some(number(1 << 40) as u64).filter(|c| c % 2 == 0),
                context: number(4096),
                parallel: number(2),
                chunk: number(512),
                head_rows: number(32),
                pass_rows: number(8192),
                residency: None,
            };
            match case.plan(&ask) {
                Err(_) => refused += 1,
                Ok(plan) => assert!(ask.capacity.is_none_or(|c| c == plan.total_bytes())),
            }
        }
        assert!((200..400).contains(&refused), "{}: {refused} refused", case.name);
    }
    let refusal = |ask: Ask| cases[0].plan(&ask).unwrap_err().to_string();
    for (field, ask) in [
        ("context", Ask::new(0)),
        ("parallel", Ask { parallel: 0, ..Ask::new(1) }),
        ("chunk", Ask { chunk: 0, ..Ask::new(1) }),
        ("head rows", Ask { head_rows: 0, ..Ask::new(1) }),
        ("pass rows", Ask { pass_rows: 0, ..Ask::new(1) }),
        ("context", Ask::new(usize::MAX)),
        ("context", Ask { parallel: 1 << 50, ..Ask::new(1 << 20) }),
        ("chunk", Ask { chunk: usize::MAX, ..Ask::new(64) }),
    ] {
        assert!(refusal(ask).starts_with(&format!("{field}: ")), "{field}: {}", refusal(ask));
    }
}

#[test]
fn residual_rows_alone_cross_layers() {
    for case in cases() {
        let found = boundaries(&case.program);
        assert_eq!(found.len(), case.program.steps.iter().filter_map(|s| s.layer).max().unwrap().index() + 1);
        for (i, boundary) in found.iter().enumerate() {
            assert_eq!(boundary.layer.index(), i);
            let step = &case.program.steps[boundary.step as usize];
            assert_eq!((step.id, step.layer, step.name), (boundary.step, Some(boundary.layer), "mixer.norm"));
            let names: Vec<_> =
                boundary.live.iter().map(|b| &case.program.buffers[b.0 as usize].name[..]).collect();
            assert_eq!(names, ["embed"]);
        }
    }
}

#[test]
fn tables_are_what_they_were() {
    let ask = |gb: u64, context| Ask { capacity: Some(gb * 1_000_000_000), ..Ask::new(context) };
    let shown = |name, ask| table(&Case::new(name).plan(&ask).unwrap().lines);
    insta::assert_snapshot!("qwen3-30b-a3b-12GB", shown("qwen3-30b-a3b", ask(12, 32_768)));
    insta::assert_snapshot!("qwen3-coder-next-24GB", shown("qwen3-coder-next", ask(24, 131_072)));
    let host = Ask { parallel: 2, ..Ask::new(4096) };
    insta::assert_snapshot!("qwen3-coder-next-host", shown("qwen3-coder-next", host));
}
