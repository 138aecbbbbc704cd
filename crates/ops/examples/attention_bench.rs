//! Times the ops of attention and of the recurrent layers on this machine, a few seconds in all:
//! `cargo run --release -p ops --example attention_bench [part of a name [threads]]`.

use std::time::Instant;

use base::philox::Stream;
use ops::format::{Acts, KvFormat};
use ops::{
    Dims, Experts, HostArgs, HostExec, Level, Op, Reads, Row, Writes, attention, conv, gated_delta, kv_write,
};
use zerocopy::IntoBytes;

/// Seconds of one run: the best by the clock, and the mean of all workers' processor time, which other work
/// on the machine disturbs less.
fn best(exec: &HostExec, mut run: impl FnMut() + Send) -> (f64, f64) {
    exec.install(|| {
        run();
        let (begin, busy) = (Instant::now(), processor_seconds());
        let mut best = f64::INFINITY;
        let mut runs = 0;
        while runs < 3 || (runs < 2000 && begin.elapsed().as_secs_f64() < 0.7) {
            let start = Instant::now();
            run();
            best = best.min(start.elapsed().as_secs_f64());
            runs += 1;
        }
        (best, (processor_seconds() - busy) / f64::from(runs))
    })
}

/// Processor time of all threads so far, as Linux counts it; 0 elsewhere.
fn processor_seconds() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let nanos = |task: std::io::Result<std::fs::DirEntry>| -> Option<f64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.filter_map(nanos).sum::<f64>() * 1e-9
}

struct Bench<'a, O> {
    name: &'a str,
    desc: O,
    dims: Dims,
    rows: Vec<Row>,
    /// Unit of `amount`, and how much of it one run is.
    unit: &'a str,
    amount: f64,
}

fn floats(bytes: usize, random: &mut Stream) -> Vec<u8> {
    let floats: Vec<f32> = (0..bytes / 4).map(|_| random.unit() - 0.5).collect();
    floats.as_bytes().to_vec()
}

impl<O: Op> Bench<'_, O> {
    /// `reads` given here replace the random floats.
    fn run(self, exec: &HostExec, given: &[(usize, &[u8])]) {
        if !wanted(self.name) {
            return;
        }
        let shapes = self.desc.shapes(self.dims);
        let mut random = Stream::new(1);
        let mut reads: Vec<Vec<u8>> = shapes.reads.iter().map(|s| floats(s.bytes, &mut random)).collect();
        given.iter().for_each(|(i, bytes)| reads[*i] = bytes.to_vec());
        let mut writes: Vec<Vec<u8>> = shapes.writes.iter().map(|s| vec![0; s.bytes]).collect();
        let (seconds, busy) = best(exec, || {
            let args = HostArgs {
                rows: &self.rows,
                context: self.dims.context,
                reads: Reads(reads.iter().map(|r| &r[..]).collect()),
                writes: Writes(writes.iter_mut().map(|w| &mut w[..]).collect()),
                experts: Experts::default(),
            };
            self.desc.simd(exec, args);
        });
        let rate = self.amount / seconds / 1e9;
        let (clock, busy) = (seconds * 1e6, busy * 1e6);
        println!("{:<32} {clock:>10.1} us, busy {busy:>10.1} us {rate:>9.2} {}", self.name, self.unit);
    }
}

fn run_of(first: u32, count: u32) -> Vec<Row> {
    (first..first + count).map(|pos| Row { seq: 0, pos }).collect()
}

/// The name contains the program's argument.
fn wanted(name: &str) -> bool {
    name.contains(&std::env::args().nth(1).unwrap_or_default())
}

/// A KV state of one sequence with all positions written.
fn state(exec: &HostExec, desc: kv_write::Desc, context: usize) -> Vec<u8> {
    let dims = Dims { rows: context, context, sequences: 1 };
    let mut random = Stream::new(2);
    let shapes = desc.shapes(dims);
    let [k, v] = [0, 1].map(|i| floats(shapes.reads[i].bytes, &mut random));
    let mut state = vec![0; shapes.writes[0].bytes];
    let rows = run_of(0, context as u32);
    let args = HostArgs {
        rows: &rows,
        context,
        reads: Reads([&k[..], &v[..]].into_iter().collect()),
        writes: Writes([&mut state[..]].into_iter().collect()),
        experts: Experts::default(),
    };
    exec.install(|| desc.simd(exec, args));
    state
}

fn attention(
    exec: &HostExec,
    name: &str,
    shape: (usize, usize, usize),
    formats: (Acts, KvFormat),
    rows: Vec<Row>,
) {
    if !wanted(name) {
        return;
    }
    let (heads, kv_heads, head_dim) = shape;
    let (acts, kv) = formats;
    let context = rows[rows.len() - 1].pos as usize + 1;
    let state = state(exec, kv_write::Desc { kv_heads, head_dim, kv }, context);
    let desc =
        attention::Desc { heads, kv_heads, head_dim, acts, kv, scale: (head_dim as f32).sqrt().recip() };
    let dims = Dims { rows: rows.len(), context, sequences: 1 };
    // Decode reads the codes once; a prompt multiplies every visible pair.
    let (unit, amount) = if rows.len() == 1 {
        ("GB/s of codes", state.len() as f64)
    } else {
        let pairs: usize = rows.iter().map(|r| r.pos as usize + 1).sum();
        ("GMAC/s", (2 * pairs * heads * head_dim) as f64)
    };
    Bench { name, desc, dims, rows, unit, amount }.run(exec, &[(1, &state)]);
}

fn main() {
    let threads = std::env::args().nth(2).and_then(|n| n.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let exec = HostExec::new(Level::detect(), threads);
    println!("{} on {} threads", exec.level.name(), exec.threads());
    if wanted("memory") {
        read_memory(&exec);
    }
    let (a8, a16, k8) = (Acts::A8, Acts::A16, KvFormat::K8);
    let (moe, next) = ((32, 4, 128), (16, 2, 256));
    for (kv, acts, name) in [
        (k8, a8, "decode 8k k8 a8 32/4x128"),
        (KvFormat::K4, a8, "decode 8k k4 a8 32/4x128"),
        (KvFormat::K6, a8, "decode 8k k6 a8 32/4x128"),
        (KvFormat::K16, a16, "decode 8k k16 a16 32/4x128"),
    ] {
        attention(&exec, name, moe, (acts, kv), run_of(8191, 1));
    }
    attention(&exec, "decode 8k k8 a8 16/2x256", next, (a8, k8), run_of(8191, 1));
    attention(&exec, "decode 100 k8 a8 32/4x128", moe, (a8, k8), run_of(100, 1));
    attention(&exec, "prefill 512 k8 a8 32/4x128", moe, (a8, k8), run_of(0, 512));
    attention(&exec, "prefill 512 k16 a16 32/4x128", moe, (a16, KvFormat::K16), run_of(0, 512));
    attention(&exec, "prefill 512 k8 a8 16/2x256", next, (a8, k8), run_of(0, 512));
    for (kv, name) in [(k8, "kv_write 512 k8 4x128"), (KvFormat::K4, "kv_write 512 k4 4x128")] {
        let desc = kv_write::Desc { kv_heads: 4, head_dim: 128, kv };
        let dims = Dims { rows: 512, context: 512, sequences: 1 };
        let amount = (512 * 4 * 128 * 2 * 4) as f64;
        Bench { name, desc, dims, rows: run_of(0, 512), unit: "GB/s of floats", amount }.run(&exec, &[]);
    }
    for (rows, name) in [(1, "conv 1 8192x4"), (512, "conv 512 8192x4")] {
        let desc = conv::Desc { channels: 8192, kernel: 4 };
        let dims = Dims { rows, context: 512, sequences: 1 };
        let amount = (rows * 8192 * 4 * 2) as f64;
        Bench { name, desc, dims, rows: run_of(0, rows as u32), unit: "GB/s of floats", amount }
            .run(&exec, &[]);
    }
    for (rows, name) in [(1, "gated_delta 1 16:32 128x128"), (64, "gated_delta 64 16:32 128x128")] {
        let desc = gated_delta::Desc { key_heads: 16, value_heads: 32, dk: 128, dv: 128 };
        let dims = Dims { rows, context: 512, sequences: 1 };
        let amount = desc.cost(dims).float_ops as f64;
        Bench { name, desc, dims, rows: run_of(0, rows as u32), unit: "GFLOP/s", amount }.run(&exec, &[]);
    }
}

/// What the memory gives: a sum over 256 MiB on all threads.
fn read_memory(exec: &HostExec) {
    let words = vec![1u64; 32 << 20];
    let (seconds, busy) = best(exec, || {
        let total = std::sync::atomic::AtomicU64::new(0);
        exec.parts(words.len(), 1 << 16, |part| {
            let sum = words[part].iter().fold(0u64, |a, w| a.wrapping_add(*w));
            total.fetch_add(sum, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 32 << 20);
    });
    let (clock, busy, rate) = (seconds * 1e6, busy * 1e6, 0.268435 / seconds);
    println!("{:<32} {clock:>10.1} us, busy {busy:>10.1} us {rate:>9.2} GB/s", "memory, read only");
}
