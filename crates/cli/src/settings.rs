//! Flags that several commands share, and what follows from them.

use anyhow::Result;
use arch::{Manifest, Model, Profile, Recipe, RoleClass};
use base::Refusal;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::Options;
use ops::{Acts, KvFormat, Level, WeightFormat};

/// Longest context that is set up without being asked for.
const DEFAULT_CONTEXT: usize = 32_768;
/// Least context that a small device is given without being asked for.
const LEAST_CONTEXT: usize = 1024;
/// Rows whose logits are computed at once.
const HEAD_ROWS: usize = 32;

/// Names of weight formats on the command line.
const FORMATS: [(&str, WeightFormat); 6] = [
    ("int4", WeightFormat::I4),
    ("int8", WeightFormat::I8),
    ("int16", WeightFormat::I16),
    ("hqq4", WeightFormat::H4),
    ("hqq6", WeightFormat::H6),
    ("hqq8", WeightFormat::H8),
];

fn format() -> impl TypedValueParser<Value = WeightFormat> {
    let parse = |name: String| -> Result<WeightFormat, String> {
        let found = FORMATS.iter().find(|(n, _)| *n == name);
        found.map(|(_, format)| *format).ok_or(name)
    };
    PossibleValuesParser::new(FORMATS.map(|(name, _)| name)).try_map(parse)
}

fn named<T>(names: Vec<&'static str>) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

fn profile() -> impl TypedValueParser<Value = Profile> {
    named(Profile::ALL.map(Profile::name).into())
}

fn kv() -> impl TypedValueParser<Value = KvFormat> {
    named(KvFormat::ALL.map(KvFormat::name).into())
}

fn level() -> impl TypedValueParser<Value = Level> {
    named([Level::Scalar, Level::Avx2, Level::Avx512].map(Level::name).into())
}

fn acts() -> impl TypedValueParser<Value = Acts> {
    PossibleValuesParser::new(["8", "16"]).map(|bits| if bits == "8" { Acts::A8 } else { Acts::A16 })
}

/// Formats of weights and widths of codes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Quantisation")]
pub struct RecipeArgs {
    /// Formats to start from
    #[arg(long, value_parser = profile(), default_value = "default")]
    pub profile: Profile,
    /// Routed experts: int4, int8 or int16
    #[arg(long, value_name = "FORMAT", value_parser = format(), hide_possible_values = true)]
    pub experts: Option<WeightFormat>,
    /// Attention projections: hqq4, hqq6, hqq8, int4, int8 or int16 (the four below too)
    #[arg(long, value_name = "FORMAT", value_parser = format(), hide_possible_values = true)]
    pub attention: Option<WeightFormat>,
    /// Projections of linear attention
    #[arg(long, value_name = "FORMAT", value_parser = format(), hide_possible_values = true)]
    pub linear_attention: Option<WeightFormat>,
    /// Shared experts
    #[arg(long, value_name = "FORMAT", value_parser = format(), hide_possible_values = true)]
    pub shared: Option<WeightFormat>,
    /// Dense feed-forward layers
    #[arg(long, value_name = "FORMAT", value_parser = format(), hide_possible_values = true)]
    pub dense: Option<WeightFormat>,
    /// Output head
    #[arg(long, value_name = "FORMAT", value_parser = format(), hide_possible_values = true)]
    pub head: Option<WeightFormat>,
    /// Keys and values of attention
    #[arg(long, value_parser = kv())]
    pub kv: Option<KvFormat>,
    /// Bits of activations
    #[arg(long, value_parser = acts())]
    pub acts: Option<Acts>,
}

impl RecipeArgs {
    /// The recipe. Errors: a format that a class of weights can't have.
    pub fn recipe(&self) -> Result<Recipe, Refusal> {
        let mut recipe = self.profile.recipe();
        let wishes = [
            ("--experts", RoleClass::Experts, self.experts),
            ("--attention", RoleClass::Attention, self.attention),
            ("--linear-attention", RoleClass::LinearAttention, self.linear_attention),
            ("--shared", RoleClass::Shared, self.shared),
            ("--dense", RoleClass::Dense, self.dense),
            ("--head", RoleClass::Head, self.head),
        ];
        for (flag, class, wish) in wishes {
            let Some(format) = wish else { continue };
            let name =
                |format: &WeightFormat| FORMATS.iter().find(|(_, f)| f == format).map_or("", |(n, _)| n);
            recipe.set(class, format).map_err(|_| {
                let allowed: Vec<_> = class.allowed().iter().map(name).collect();
                let limit = format!("one of {}", allowed.join(", "));
                Refusal::value(flag, name(&format), limit, "choose one of these")
            })?;
        }
        recipe.kv = self.kv.unwrap_or(recipe.kv);
        recipe.acts = self.acts.unwrap_or(recipe.acts);
        Ok(recipe)
    }
}

/// Speed and size of the engine: none of these can change a result.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Worker threads [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// Instructions to use [default: the best this machine has]
    #[arg(long, value_parser = level())]
    pub simd: Option<Level>,
    #[command(flatten)]
    pub size: SizeArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// How much text is held and worked on at once.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub struct SizeArgs {
    /// Tokens of prompt and answer together [default: the model's, at most 32768 and what the device holds]
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Tokens of the prompt that are processed together
    #[arg(long, value_name = "N", default_value = "512")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub chunk: u32,
    /// Tokens of the prompt for which a device's experts are streamed once
    #[arg(long, value_name = "N", default_value_t = plan::PASS_ROWS as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub pass: u32,
}

impl SizeArgs {
    /// Options of these sizes for `model`, at least `needed` tokens of context unless a context is given.
    pub fn options(&self, model: &Model, needed: usize) -> Options {
        let usual = model.max_positions.min(DEFAULT_CONTEXT.max(needed));
        let context = self.context.unwrap_or(usual);
        let chunk = (self.chunk as usize).min(context.max(1));
        Options { chunk, pass_rows: self.pass as usize, head_rows: HEAD_ROWS, ..Options::new(context) }
    }

    /// `options` with less context where nobody asked for this much and the device is too small for it.
    pub fn fitted(
        &self,
        mut options: Options,
        model: &Model,
        recipe: &Recipe,
        needed: usize,
    ) -> Result<Options, Refusal> {
        if self.context.is_some() || options.vram.is_none() {
            return Ok(options);
        }
        let (program, manifest) = (arch::lower(model, recipe)?, Manifest::new(model, recipe));
        let least = needed.max(LEAST_CONTEXT);
        while options.context / 2 >= least && plan::plan(&program, &manifest, &options.ask()).is_err() {
            options.context /= 2;
        }
        options.chunk = options.chunk.min(options.context);
        Ok(options)
    }
}

/// What the model runs on. Without `--vram`, weights and experts are read where the cache file is mapped.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Where the model runs: on this machine's processors and memory
    #[arg(long, value_parser = ["host"], default_value = "host")]
    pub device: String,
    /// Bytes of the device (24GiB, 500MB): experts that don't fit stream into it [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub vram: Option<u64>,
    /// Most experts on the device, in percent of all: for experiments
    #[arg(long, value_name = "N%", value_parser = percent, requires = "vram")]
    pub residency: Option<u32>,
}

impl DeviceArgs {
    /// `options` on this device.
    pub fn options(&self, options: Options) -> Options {
        Options { vram: self.vram, residency: self.residency, ..options }
    }
}

/// `8GB`, `500MB`, `2GiB`, `1.5GB` or plain bytes.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    let unit = UNITS.iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    match number.trim().parse::<f64>() {
        Ok(n) if n > 0.0 && n * factor < 1e16 => Ok((n * factor) as u64),
        _ => Err("a size is a positive number with a unit: 8GB, 500MB, 2GiB".into()),
    }
}

/// `60%` or `60`.
fn percent(text: &str) -> Result<u32, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err("a share is a whole number from 0% to 100%".into()),
    }
}

impl EngineArgs {
    /// The SIMD level. Errors: this machine does not have it.
    pub fn level(&self) -> Result<Level, Refusal> {
        let best = Level::detect();
        match self.simd {
            Some(wish) if wish > best => Err(Refusal::unsupported(
                format!("--simd {}", wish.name()),
                format!("this machine has {} at most", best.name()),
                "leave it out to use the best there is",
            )),
            wish => Ok(wish.unwrap_or(best)),
        }
    }

    /// Options for `model`, at least `needed` tokens of context unless a context is given.
    pub fn options(&self, model: &Model, recipe: &Recipe, needed: usize) -> Result<Options, Refusal> {
        let level = self.level()?;
        let threads = self.threads.map_or_else(base::os::threads, |n| n as usize);
        let options = self.device.options(self.size.options(model, needed));
        let options = Options { threads, level, ..options };
        self.size.fitted(options, model, recipe, needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        recipe: RecipeArgs,
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn flags(line: &str) -> Flags {
        Flags::try_parse_from(format!("x {line}").split_whitespace()).unwrap()
    }

    #[test]
    fn flags_change_their_part_of_the_profile() {
        assert_eq!(flags("").recipe.recipe().unwrap(), Profile::Default.recipe());
        let recipe = flags("--profile small --experts int8 --linear-attention hqq8 --kv k6v6 --acts 16");
        let recipe = recipe.recipe.recipe().unwrap();
        assert_eq!(
            recipe.to_string(),
            "experts=i8,attention=h4,linear_attention=h8,shared=i8,dense=i8,router=i16,small_gates=i16,\
             head=i8,acts=a16,kv=k6v6"
        );
    }

    #[test]
    fn formats_a_class_cannot_have_are_refused_in_the_flags_own_words() {
        let error = flags("--experts hqq4").recipe.recipe().unwrap_err().to_string();
        assert!(error.contains("--experts: hqq4") && error.contains("int4, int8, int16"), "{error}");
        for bad in ["--experts i4", "--kv k5v5", "--acts 12", "--simd sse", "--threads 0", "--chunk 0"] {
            assert!(Flags::try_parse_from(format!("x {bad}").split_whitespace()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_level_the_machine_lacks_is_refused_by_name() {
        assert_eq!(flags("").engine.level().unwrap(), Level::detect());
        assert_eq!(flags("--simd scalar").engine.level().unwrap(), Level::Scalar);
        if Level::detect() < Level::Avx512 {
            let error = flags("--simd avx512").engine.level().unwrap_err().to_string();
            assert!(error.contains("avx512") && error.contains(Level::detect().name()), "{error}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("8GB", 8_000_000_000), ("2GiB", 2 << 30), ("1.5MB", 1_500_000), ("77", 77)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for bad in ["", "GB", "-1GB", "nanGB", "1e30GB", "8 Gigs", "8GBGB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_device_is_a_size_and_a_share() {
        let flags = |line| flags(line).engine.device;
        assert_eq!((flags("").vram, flags("").residency), (None, None));
        let limited = flags("--device host --vram 24MiB --residency 60%");
        assert_eq!((limited.vram, limited.residency), (Some(24 << 20), Some(60)));
        assert_eq!(flags("--vram 1GB --residency 0").residency, Some(0));
        for bad in [
            "--residency 60",
            "--vram 1GB --residency 101%",
            "--vram 1GB --residency -1",
            "--vram 0",
            "--device cuda:9",
        ] {
            assert!(Flags::try_parse_from(format!("x {bad}").split_whitespace()).is_err(), "{bad}");
        }
    }
}
