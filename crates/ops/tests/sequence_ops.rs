//! The ops that carry a sequence's state, through whole conversations: two sequences give the same bytes
//! alone, together, in chunks of any size and token by token, states included, on every level and thread
//! count.

use base::philox::Stream;
use ops::format::{Acts, KvFormat};
use ops::{
    Dims, Experts, HostArgs, HostExec, Level, Op, Reads, Row, Writes, attention, conv, gated_delta, kv_write,
};
use zerocopy::IntoBytes;

/// Every level and thread count of this machine.
fn executors() -> Vec<HostExec> {
    Level::available().flat_map(|level| [1, 3].map(|threads| HostExec::new(level, threads))).collect()
}

/// The written operands after a run over some of the case's rows: `reads` are the rows' own.
fn run<O: Op>(
    desc: &O,
    exec: &HostExec,
    rows: &[Row],
    context: usize,
    reads: &[&[u8]],
    writes: &mut [Vec<u8>],
) {
    let args = HostArgs {
        rows,
        context,
        reads: Reads(reads.iter().copied().collect()),
        writes: Writes(writes.iter_mut().map(|w| &mut w[..]).collect()),
        experts: Experts::default(),
    };
    match exec.level {
        Level::Scalar => desc.reference(args),
        _ => exec.install(|| desc.simd(exec, args)),
    }
}

/// A read operand: of a row's own (found by sequence and position), or shared by all rows.
enum In<'a> {
    Rows(&'a PerToken),
    Shared(&'a [u8]),
}

/// Floats of every token of every sequence.
struct PerToken {
    width: usize,
    floats: Vec<Vec<f32>>,
}

/// Tokens of the two sequences.
const LENGTHS: [u32; 2] = [150, 91];

impl PerToken {
    fn random(width: usize, seed: u64) -> Self {
        let mut random = Stream::new(seed);
        let mut sequence = |len: u32| (0..len as usize * width).map(|_| random.unit() * 4.0 - 2.0).collect();
        PerToken { width, floats: LENGTHS.map(&mut sequence).to_vec() }
    }

    fn zeros(width: usize) -> Self {
        PerToken { width, floats: LENGTHS.map(|len| vec![0.0; len as usize * width]).to_vec() }
    }

    fn gather(&self, rows: &[Row]) -> Vec<u8> {
        let row =
            |r: &Row| self.floats[r.seq as usize][r.pos as usize * self.width..][..self.width].as_bytes();
        rows.iter().flat_map(row).copied().collect()
    }

    fn scatter(&mut self, rows: &[Row], bytes: &[u8]) {
        for (row, bytes) in rows.iter().zip(bytes.chunks_exact(4 * self.width)) {
            let out = &mut self.floats[row.seq as usize][row.pos as usize * self.width..][..self.width];
            out.as_mut_bytes().copy_from_slice(bytes);
        }
    }
}

/// Batches in which the tokens of both sequences are worked through.
fn plans() -> Vec<(&'static str, Vec<Vec<Row>>)> {
    let run = |seq: u32, range: std::ops::Range<u32>| range.map(move |pos| Row { seq, pos });
    let chunks = |size: u32| -> Vec<Vec<Row>> {
        let of = |seq: u32, first: u32| run(seq, first..(first + size).min(LENGTHS[seq as usize])).collect();
        (0..2)
            .flat_map(|seq| (0..LENGTHS[seq as usize]).step_by(size as usize).map(move |first| (seq, first)))
            .map(|(seq, first)| of(seq, first))
            .collect()
    };
    let token_of_each = |pos: u32| -> Vec<Row> {
        [1, 0].into_iter().filter(|seq| pos < LENGTHS[*seq as usize]).map(|seq| Row { seq, pos }).collect()
    };
    // Sequence 0 decodes while the prompt of sequence 1 comes in chunks.
    let mut mixed: Vec<Vec<Row>> = vec![run(0, 0..100).collect()];
    for i in 0..50 {
        let mut batch: Vec<Row> = run(0, 100 + i..101 + i).collect();
        batch.extend(run(1, (i * 10).min(91)..(i * 10 + 10).min(91)));
        mixed.push(batch);
    }
    vec![
        ("each whole", chunks(1000)),
        ("both whole", vec![run(1, 0..LENGTHS[1]).chain(run(0, 0..LENGTHS[0])).collect()]),
        ("chunks of 7", chunks(7)),
        ("chunks of 64", chunks(64)),
        ("chunks of 100", chunks(100)),
        ("token by token", (0..LENGTHS[0]).map(token_of_each).collect()),
        ("mixed", mixed),
    ]
}

/// One batch of one op: the first written operand goes to `out` if there is one, the last is the state.
fn step<O: Op>(
    desc: &O,
    exec: &HostExec,
    rows: &[Row],
    ins: &[In<'_>],
    out: Option<&mut PerToken>,
    state: &mut Vec<u8>,
) {
    let gathered: Vec<Vec<u8>> = ins
        .iter()
        .map(|i| match i {
            In::Rows(rows_of) => rows_of.gather(rows),
            In::Shared(bytes) => bytes.to_vec(),
        })
        .collect();
    let reads: Vec<&[u8]> = gathered.iter().map(|g| &g[..]).collect();
    let mut writes = Vec::new();
    if let Some(out) = &out {
        writes.push(vec![0xA5; 4 * rows.len() * out.width]);
    }
    if !state.is_empty() {
        writes.push(std::mem::take(state));
    }
    run(desc, exec, rows, 150, &reads, &mut writes);
    if writes.len() > usize::from(out.is_some()) {
        *state = writes.pop().expect("the state");
    }
    if let Some(out) = out {
        out.scatter(rows, &writes[0]);
    }
}

/// Every plan on every level and thread count gives what `play` gives first.
fn plans_agree(what: &str, play: impl Fn(&HostExec, &[Vec<Row>]) -> (PerToken, Vec<u8>)) {
    let mut first: Option<(PerToken, Vec<u8>)> = None;
    for exec in executors() {
        for (name, plan) in plans() {
            // The reference's threads do not differ.
            if exec.level == Level::Scalar && exec.threads() > 1 {
                continue;
            }
            let got = play(&exec, &plan);
            let (o, state) = first.get_or_insert_with(|| play(&exec, &plan));
            let place = (what, name, exec.level, exec.threads());
            for seq in 0..2 {
                assert!(
                    o.floats[seq].as_bytes() == got.0.floats[seq].as_bytes(),
                    "outputs of {seq}: {place:?}"
                );
            }
            assert!(*state == got.1, "state: {place:?}");
        }
    }
}

#[test]
fn attention_does_not_depend_on_batches() {
    for kv in KvFormat::ALL {
        for acts in [Acts::A8, Acts::A16] {
            let desc = attention::Desc { heads: 4, kv_heads: 2, head_dim: 64, acts, kv, scale: 0.125 };
            let write = kv_write::Desc { kv_heads: 2, head_dim: 64, kv };
            let [k, v, q] = [(128, 1), (128, 2), (256, 3)].map(|(width, seed)| PerToken::random(width, seed));
            let size = write.shapes(Dims { rows: 1, context: 150, sequences: 2 }).writes[0].bytes;
            plans_agree(&format!("{kv:?} {acts:?}"), |exec, plan| {
                let (mut o, mut state) = (PerToken::zeros(256), vec![0u8; size]);
                for rows in plan {
                    step(&write, exec, rows, &[In::Rows(&k), In::Rows(&v)], None, &mut state);
                    let ins = [In::Rows(&q), In::Shared(&state)];
                    step(&desc, exec, rows, &ins, Some(&mut o), &mut Vec::new());
                }
                (o, state)
            });
        }
    }
}

#[test]
fn conv_does_not_depend_on_batches() {
    let desc = conv::Desc { channels: 77, kernel: 4 };
    let (u, w) = (PerToken::random(77, 5), PerToken::random(4, 6));
    plans_agree("conv", |exec, plan| {
        let (mut y, mut tail) = (PerToken::zeros(77), vec![0u8; 4 * 2 * 3 * 77]);
        let w = w.floats[0][..4 * 77].as_bytes();
        for rows in plan {
            step(&desc, exec, rows, &[In::Rows(&u), In::Shared(w)], Some(&mut y), &mut tail);
        }
        (y, tail)
    });
}

#[test]
fn gated_delta_does_not_depend_on_batches() {
    let desc = gated_delta::Desc { key_heads: 1, value_heads: 2, dk: 32, dv: 40 };
    let (qkv, ba) = (PerToken::random(desc.qkv_width(), 5), PerToken::random(4, 6));
    let (decay, dt_bias) = ([-0.7f32, -0.02], [0.3f32, -0.6]);
    plans_agree("gated_delta", |exec, plan| {
        let (mut o, mut state) = (PerToken::zeros(80), vec![0u8; 4 * 2 * 2 * 32 * 40]);
        for rows in plan {
            let shared = [In::Shared(decay.as_bytes()), In::Shared(dt_bias.as_bytes())];
            let [decay, dt_bias] = shared;
            let ins = [In::Rows(&qkv), In::Rows(&ba), decay, dt_bias];
            step(&desc, exec, rows, &ins, Some(&mut o), &mut state);
        }
        (o, state)
    });
}

#[test]
fn descriptors_that_no_kernel_is_written_for_are_refused() {
    let refused = |result: Result<(), base::Refusal>, field: &str| {
        let words = result.expect_err(field).to_string();
        assert!(words.starts_with(field), "{words}");
    };
    let write = kv_write::Desc { kv_heads: 2, head_dim: 64, kv: KvFormat::K8 };
    refused(kv_write::Desc { kv_heads: 0, ..write }.validate(), "kv_heads: 0");
    refused(kv_write::Desc { head_dim: 72, ..write }.validate(), "head_dim: 72");
    refused(kv_write::Desc { head_dim: 528, ..write }.validate(), "head_dim: 528");
    let (acts, kv) = (Acts::A8, KvFormat::K8);
    let attend = attention::Desc { heads: 4, kv_heads: 2, head_dim: 64, acts, kv, scale: 0.125 };
    refused(attention::Desc { heads: 5, ..attend }.validate(), "attention heads: 5");
    refused(attention::Desc { head_dim: 0, ..attend }.validate(), "head_dim: 0");
    refused(attention::Desc { scale: f32::NAN, ..attend }.validate(), "attention scale: NaN");
    refused(conv::Desc { channels: 0, kernel: 4 }.validate(), "conv channels: 0");
    refused(conv::Desc { channels: 8, kernel: 9 }.validate(), "conv kernel: 9");
    let delta = gated_delta::Desc { key_heads: 2, value_heads: 4, dk: 32, dv: 40 };
    refused(gated_delta::Desc { value_heads: 3, ..delta }.validate(), "linear value heads: 3");
    refused(gated_delta::Desc { dk: 40, ..delta }.validate(), "linear key head_dim: 40");
    refused(gated_delta::Desc { dv: 0, ..delta }.validate(), "linear value head_dim: 0");
}
