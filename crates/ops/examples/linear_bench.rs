//! Speed of the products: decode (one row, weights larger than the caches) as a share of the read
//! bandwidth, prefill (many rows) as a share of the int8 dot rate, both measured in the same run because
//! machines are shared and noisy.
//!
//! `cargo run --release -p ops --example linear_bench [threads] [level] [format] [512|decode|cached|experts]`

use std::time::Instant;

use base::philox::Stream;
use ops::linear::layout::{Expert, Matrix};
use ops::{
    Acts, Dims, Experts, HostArgs, HostExec, Level, OpDesc, Reads, Row, WeightFormat, Writes, expert_down,
    expert_gate_up, linear, probe,
};

/// Read per decode measurement: several times the largest third-level cache of desktop machines.
const COLD_BYTES: usize = 160 << 20;

struct Bench {
    exec: HostExec,
    /// Bytes per second.
    bandwidth: f64,
    /// Multiply-adds per second.
    dots: f64,
    /// Only lines that contain this.
    words: String,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().map_or(2, |n| n.parse().expect("a number of threads"));
    let level = args.next().map_or(Level::detect(), |l| l.parse().expect("a level"));
    let only: Option<WeightFormat> = args.next().map(|f| f.parse().expect("a format"));
    let words = args.next().unwrap_or_default();
    let bandwidth = probe::read_bandwidth(threads, COLD_BYTES);
    let dots = probe::int8_dot_rate(threads, level);
    println!(
        "{} on {threads} threads: reads {:.1} GB/s, dots {:.0} GMAC/s",
        level.name(),
        bandwidth / 1e9,
        dots / 1e9
    );
    let bench = Bench { exec: HostExec::new(level, threads), bandwidth, dots, words };
    println!("{:34} {:>10} {:>9} {:>10} {:>8}", "", "GB/s", "of reads", "GMAC/s", "of dots");
    for format in WeightFormat::ALL.into_iter().filter(|f| only.is_none_or(|o| o == *f)) {
        for acts in [Acts::A8, Acts::A16] {
            bench.linear(format, acts);
            bench.experts(format, acts);
        }
    }
}

impl Bench {
    fn report(&self, name: &str, bytes: usize, macs: usize, seconds: f64) {
        let (bytes, macs) = (bytes as f64 / seconds, macs as f64 / seconds);
        let (reads, dots) = (100.0 * bytes / self.bandwidth, 100.0 * macs / self.dots);
        println!("{name:34} {:10.2} {reads:8.0}% {:10.1} {dots:7.0}%", bytes / 1e9, macs / 1e9);
    }

    /// Best of a few runs, in seconds.
    fn best(&self, mut run: impl FnMut() + Send) -> f64 {
        self.exec.install(|| {
            run();
            let start = Instant::now();
            let mut best = f64::MAX;
            for i in 0.. {
                let now = Instant::now();
                run();
                best = best.min(now.elapsed().as_secs_f64());
                if i >= 2 && start.elapsed().as_secs_f64() > 0.25 {
                    break;
                }
            }
            best
        })
    }

    fn linear(&self, format: WeightFormat, acts: Acts) {
        let k = 2048;
        let cold = COLD_BYTES * 8 / (format.bits() * k) / 16 * 16;
        for (what, n, rows) in
            [("decode", cold, 1), ("2 rows", cold, 2), ("1 row cached", 128, 1), ("prefill 512", 128, 512)]
        {
            let name = format!("linear {} {acts:?} {what}", format.name());
            if !name.contains(&self.words) {
                continue;
            }
            let desc = linear::Desc { n, k, format, acts, bias: false };
            let matrix = Matrix::new(format, n, k);
            let weight = random_weights(matrix.code_bytes(), matrix.scale_bytes());
            let (reads, mut writes, all) = operands(&desc.into(), rows, vec![Vec::new(), Vec::new(), weight]);
            let seconds = self.best(|| {
                run(&self.exec, &desc.into(), &all, &reads, &mut writes, Experts::default());
            });
            self.report(&name, matrix.bytes(), rows * n * k, seconds);
        }
    }

    fn experts(&self, format: WeightFormat, acts: Acts) {
        let (hidden, inter) = (2048, 512);
        let layout = Expert::new(format, hidden, inter);
        if !(self.words.is_empty() || self.words == "experts") {
            return;
        }
        let experts = COLD_BYTES / layout.bytes() / 8 * 8;
        let codes = layout.gate_up.code_bytes() + layout.down.code_bytes();
        let memory = random_weights(codes, layout.bytes() - codes).repeat(experts);
        let offsets: Vec<u64> = (0..experts as u64).map(|e| e * layout.bytes() as u64).collect();
        let table = Experts { memory: &memory, offsets: &offsets, block_bytes: layout.bytes() };
        for (what, rows, top_k, used) in
            [("decode top 8", 1, 8, experts), ("prefill 8 of 64", 64, 8, 64), ("prefill 32 of 8", 256, 1, 8)]
        {
            let used = used.min(experts);
            let gate_up = expert_gate_up::Desc { experts, top_k, hidden, inter, format, acts };
            let down = expert_down::Desc { experts, top_k, hidden, inter, format, acts };
            for (name, desc, matrix) in [
                ("gate_up", OpDesc::from(gate_up), layout.gate_up),
                ("down", OpDesc::from(down), layout.down),
            ] {
                // Every step of decode meets other experts, so that they are cold.
                let steps = if rows == 1 { used / top_k } else { 1 };
                let (mut reads, mut writes, all) = operands(&desc, rows, vec![Vec::new(); 4]);
                let groupings: Vec<_> =
                    (0..steps).map(|s| grouping(experts, used, rows * top_k, s * top_k)).collect();
                let seconds = self.best(|| {
                    for [offsets, entries] in &groupings {
                        reads[2].clone_from(offsets);
                        reads[3].clone_from(entries);
                        run(&self.exec, &desc, &all, &reads, &mut writes, table);
                    }
                });
                let matrices = if rows == 1 { steps * top_k } else { used.min(rows * top_k) };
                let name = format!("{name} {} {acts:?} {what}", format.name());
                let macs = steps * rows * top_k * matrix.n * matrix.k;
                self.report(&name, matrices * matrix.bytes(), macs, seconds);
            }
        }
    }
}

/// Random codes and one ordinary scale everywhere.
fn random_weights(codes: usize, scales: usize) -> Vec<u8> {
    let mut random = Stream::new(1);
    let pattern: Vec<u8> = (0..4096).flat_map(|_| random.u32().to_le_bytes()).collect();
    let codes = pattern.iter().copied().cycle().take(codes);
    codes.chain([0x00, 0x3C].into_iter().cycle().take(scales)).collect()
}

/// Entries of `count` (row, rank) pairs spread evenly over experts `first..first + used`.
fn grouping(experts: usize, used: usize, count: usize, first: usize) -> [Vec<u8>; 2] {
    let mut pairs: Vec<(u32, u32)> = (0..count).map(|i| (((first + i) % used) as u32, i as u32)).collect();
    pairs.sort_unstable();
    let before = |e: usize| pairs.iter().filter(|p| (p.0 as usize) < e).count() as u32;
    let bytes = |values: &mut dyn Iterator<Item = u32>| values.flat_map(u32::to_le_bytes).collect();
    [bytes(&mut (0..=experts).map(before)), bytes(&mut pairs.iter().map(|p| p.1))]
}

/// Operands of an op: those given, random codes and constant scales where they are empty.
fn operands(desc: &OpDesc, rows: usize, given: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<Row>) {
    let shapes = desc.shapes(Dims { rows, context: rows, sequences: 1 });
    let mut random = Stream::new(2);
    let mut reads = given;
    for (read, spec) in reads.iter_mut().zip(&shapes.reads).filter(|(read, _)| read.is_empty()) {
        *read = match spec.name {
            "codes" => (0..spec.bytes).map(|_| (random.below(255) as i32 - 127) as i8 as u8).collect(),
            _ => 0.01f32.to_le_bytes().repeat(spec.bytes / 4),
        };
    }
    let writes = shapes.writes.iter().map(|spec| vec![0; spec.bytes]).collect();
    (reads, writes, (0..rows as u32).map(|pos| Row { seq: 0, pos }).collect())
}

fn run(
    exec: &HostExec,
    desc: &OpDesc,
    rows: &[Row],
    reads: &[Vec<u8>],
    writes: &mut [Vec<u8>],
    experts: Experts<'_>,
) {
    let reads = Reads(reads.iter().map(Vec::as_slice).collect());
    let writes = Writes(writes.iter_mut().map(Vec::as_mut_slice).collect());
    desc.run(exec, HostArgs { rows, context: rows.len(), reads, writes, experts });
}
