//! Builds a weight cache and says what it cost: `cache_build FOLDER CACHE [PROFILE] [THREADS]`.
//!
//! Prints a line per 10 % of the source, then seconds, CPU seconds, MB of source per CPU second, and the
//! largest anonymous memory seen. An uninterrupted run on an idle machine is the figure that counts.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arch::{Manifest, Profile};
use checkpoint::Checkpoint;
use weights::{Options, Progress};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, cache, rest @ ..] = &args[..] else { return Err("FOLDER CACHE [PROFILE] [THREADS]".into()) };
    let profile: Profile = rest.first().map_or("default", String::as_str).parse()?;
    let threads = rest.get(1).map_or(Ok(base::os::threads()), |t| t.parse())?;
    let checkpoint = Checkpoint::open(Path::new(folder))?;
    let recipe = profile.recipe();
    let manifest = Manifest::new(&arch::read(&checkpoint)?, &recipe);
    let (peak, last, total) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let progress = |p: Progress| {
        let anonymous = base::os::status_bytes("RssAnon").unwrap_or(0);
        peak.set(peak.get().max(anonymous));
        total.set(p.bytes_total);
        let tenth = p.bytes_done * 10 / p.bytes_total.max(1);
        if tenth > last.replace(tenth) {
            println!("{tenth}0 % {}", p.section);
        }
    };
    let (start, cancel) = (Instant::now(), AtomicBool::new(false));
    let options = Options::with_threads(threads);
    let (cache, built) =
        weights::ensure(&checkpoint, &manifest, &recipe, Path::new(cache), &options, &progress, &cancel)?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds());
    let rate = total.get() as f64 / 1e6 / cpu;
    println!("built {built}, {} bytes from {}, {threads} threads", cache.bytes(), total.get());
    println!("{seconds:.2} s, {cpu:.2} CPU s, {rate:.1} MB of source per CPU second");
    println!("largest RssAnon {}", base::Bytes(peak.get()));
    Ok(())
}

/// User and system time of this process, in clock ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}
