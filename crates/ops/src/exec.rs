//! How fast the host runs ops: the SIMD level and the worker pool. Neither can change a bit.

use std::str::FromStr;

/// Which implementation of an op runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The reference loops.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F/BW/VL/DQ and VNNI on top.
    Avx512,
}

impl Level {
    /// The best level of this machine.
    pub fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("fma")
                && std::arch::is_x86_feature_detected!("f16c");
            let avx512 = std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vl")
                && std::arch::is_x86_feature_detected!("avx512dq")
                && std::arch::is_x86_feature_detected!("avx512vnni");
            match (avx2, avx512) {
                (true, true) => return Level::Avx512,
                (true, false) => return Level::Avx2,
                _ => {}
            }
        }
        Level::Scalar
    }

    /// All levels this machine can run, slowest first.
    pub fn available() -> impl Iterator<Item = Level> {
        let best = Level::detect();
        [Level::Scalar, Level::Avx2, Level::Avx512].into_iter().filter(move |l| *l <= best)
    }

    /// Name as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        [Level::Scalar, Level::Avx2, Level::Avx512]
            .into_iter()
            .find(|l| l.name() == s)
            .ok_or_else(|| format!("{s}: not one of scalar, avx2, avx512"))
    }
}

/// The host's way to run ops. Call ops from inside [`HostExec::install`], so that parallel iterators use
/// this pool and no other.
#[derive(Debug)]
pub struct HostExec {
    /// Which implementation.
    pub level: Level,
    pool: rayon::ThreadPool,
}

impl HostExec {
    /// A pool of `threads` workers. Panics if the level is not available here: callers check the user's wish
    /// against [`Level::detect`] first.
    pub fn new(level: Level, threads: usize) -> Self {
        assert!(level <= Level::detect(), "SIMD level {} is not available here", level.name());
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|i| format!("krasis-{i}"))
            .build()
            .expect("worker threads can be started");
        HostExec { level, pool }
    }

    /// Workers.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `f` inside the pool.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.pool.install(f)
    }

    /// Calls `f` once on every worker.
    pub fn on_each(&self, f: impl Fn() + Sync) {
        self.pool.broadcast(|_| f());
    }

    /// Calls `f(part)` for each part of `0..count` cut into pieces of at least `grain` (the last may be
    /// shorter), on the workers if there are several pieces. Results must not depend on the cut.
    pub fn parts(&self, count: usize, grain: usize, f: impl Fn(std::ops::Range<usize>) + Sync) {
        use rayon::prelude::*;
        let threads = self.threads();
        let grain = grain.max(1);
        if threads == 1 || count <= grain {
            if count > 0 {
                f(0..count);
            }
            return;
        }
        let piece = self.piece(count, grain);
        (0..count.div_ceil(piece)).into_par_iter().for_each(|i| f(i * piece..((i + 1) * piece).min(count)));
    }

    /// Cuts `out` into pieces of whole units (`unit` elements each, at least `grain` units, the last piece
    /// may be shorter) and calls `f(first unit, piece)` for each, on the workers if there are several.
    /// Results must not depend on the cut.
    pub fn parts_mut<T: Send>(
        &self,
        out: &mut [T],
        unit: usize,
        grain: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        use rayon::prelude::*;
        let (count, threads, grain) = (out.len() / unit, self.threads(), grain.max(1));
        assert_eq!(count * unit, out.len(), "an output of whole units");
        if threads == 1 || count <= grain {
            if count > 0 {
                f(0, out);
            }
            return;
        }
        let piece = self.piece(count, grain);
        out.par_chunks_mut(piece * unit).enumerate().for_each(|(i, out)| f(i * piece, out));
    }

    /// Size of the pieces of `count`: four a worker even out unequal speeds without many hand-overs.
    fn piece(&self, count: usize, grain: usize) -> usize {
        count.div_ceil(self.threads() * 4).max(grain).next_multiple_of(grain)
    }
}
