//! Real folders: the committed fixtures always, all families where KRASIS_TEST_DATA names the large data.

use std::path::{Path, PathBuf};

use base::FileFault;
use checkpoint::safetensors::{File, parse_header};
use checkpoint::{Checkpoint, Dtype, RopeScaling, eos_ids};

/// Every folder of a family, with each of its configurations.
fn family_folders(arch: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(arch).unwrap() {
        let folder = entry.unwrap().path();
        for config in ["config.json", "config.hub.json"] {
            let config = folder.join(config);
            if config.exists() {
                out.push((folder.clone(), config));
            }
        }
    }
    out.sort();
    out
}

fn read_every_float(model: &Checkpoint) -> usize {
    let mut read = 0;
    for t in model.tensors().filter(|t| t.dtype.is_float()) {
        let mut out = vec![f32::NAN; t.elements()];
        model.read_rows(&t.name, 0..t.rows(), &mut out).unwrap();
        assert!(out.iter().all(|x| x.is_finite()), "{} in {}", t.name, model.folder().display());
        model.release(&t.name, 0..t.rows());
        read += 1;
    }
    read
}

#[test]
fn every_family_opens_with_both_configurations() {
    let Some(data) = testdata::shared_or_skip() else { return };
    let folders = family_folders(&data.join("fixtures/arch"));
    assert!(folders.len() >= 20, "only {} configurations", folders.len());
    for (folder, config) in folders {
        let model = Checkpoint::open_with_config(&folder, Some(&config)).unwrap();
        assert!(model.tensors().is_sorted_by(|a, b| a.name < b.name));
        assert!(model.total_bytes() > 1_000_000);
        assert!(model.tensor("lm_head.weight").is_some(), "{}", folder.display());
        assert!(!eos_ids(&model).unwrap().is_empty(), "{}", config.display());
        assert!(model.generation_config().is_some());
        assert!(read_every_float(&model) > 50);
        assert!(!model.config().model_type().unwrap().is_empty());
    }
}

#[test]
fn both_spellings_give_the_same_rotary_embedding() {
    let Some(data) = testdata::shared_or_skip() else { return };
    for (folder, config) in family_folders(&data.join("fixtures/arch")) {
        if !config.ends_with("config.hub.json") {
            continue;
        }
        let rope = |config: &Path| {
            let config = checkpoint::Config::open(config).unwrap();
            config.rope(64).unwrap()
        };
        let (new, old) = (rope(&folder.join("config.json")), rope(&config));
        assert_eq!(new, old, "{}", folder.display());
        let family = folder.file_name().unwrap().to_str().unwrap();
        match family {
            "deepseek_v2" | "deepseek_v3" | "deepseek_v3-fp8" => assert!(matches!(
                new.scaling,
                RopeScaling::Yarn { factor: 40.0, original: 1024, truncate: true, .. }
            )),
            "gpt_oss" | "gpt_oss_mxfp4" => assert_eq!(
                new.scaling,
                RopeScaling::Yarn {
                    factor: 32.0,
                    original: 4096,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                    attention_factor: None,
                    mscale: None,
                    mscale_all_dim: None,
                    truncate: false
                }
            ),
            _ => assert_eq!(new.scaling, RopeScaling::None),
        }
        let partial = match family {
            "glm4_moe" | "minimax_m2" => 0.5,
            "qwen3_next" => 0.25,
            _ => 1.0,
        };
        assert_eq!(new.partial_factor, partial, "{family}");
    }
}

/// The F8 fixture was made from the same maths as its expected values: dequantised weights are finite, of
/// the right shape and of plausible size.
#[test]
fn f8_weights_are_dequantised() {
    let Some(data) = testdata::shared_or_skip() else { return };
    let model = Checkpoint::open(&data.join("fixtures/arch/deepseek_v3-fp8")).unwrap();
    let coded: Vec<_> = model.tensors().filter(|t| t.dtype == Dtype::F8E4M3).collect();
    assert_eq!(coded.len(), 104);
    for t in coded {
        let mut all = vec![0.0; t.elements()];
        model.read_rows(&t.name, 0..t.rows(), &mut all).unwrap();
        let rms = (all.iter().map(|x| f64::from(x * x)).sum::<f64>() / all.len() as f64).sqrt();
        assert!((1e-3..10.0).contains(&rms), "{}: rms {rms}", t.name);
        // Any piece of the rows gives the same values as the whole.
        let columns = t.columns();
        for rows in [0..1, t.rows() / 2..t.rows(), t.rows() - 1..t.rows()] {
            let mut part = vec![0.0; rows.len() * columns];
            model.read_rows(&t.name, rows.clone(), &mut part).unwrap();
            assert_eq!(part, all[rows.start * columns..rows.end * columns], "{}", t.name);
        }
        let scales = model.bytes(&format!("{}_scale_inv", t.name)).unwrap();
        let scale = f32::from_le_bytes(scales[..4].try_into().unwrap());
        let code = model.bytes(&t.name).unwrap()[0];
        assert_eq!(all[0], checkpoint::dtype::F8_E4M3_VALUES[usize::from(code)] * scale);
    }
}

#[test]
fn committed_fixtures_open_and_their_expected_values_are_typed() {
    for family in ["qwen3_moe", "qwen3_next"] {
        let folder = testdata::fixture(family);
        let model = Checkpoint::open(&folder).unwrap();
        assert_eq!(model.config().model_type().unwrap(), family);
        assert_eq!(eos_ids(&model).unwrap(), [2]);
        assert!(read_every_float(&model) > 50);
        let expected = File::open(&folder.join("expected.safetensors")).unwrap();
        let ids = expected.i64("input_ids").unwrap();
        let logits = expected.f32("logits").unwrap();
        assert_eq!(logits.len(), ids.len() * 512);
        let error = expected.f32("input_ids").unwrap_err().to_string();
        assert!(error.contains("input_ids") && error.contains("I64"), "{error}");
        let error = expected.i64("no.such").unwrap_err().to_string();
        assert!(error.contains("expected.safetensors") && error.contains("no.such"), "{error}");
    }
}

/// A published-form file cut by one byte and in half: file, expected and real size, and what to do.
#[test]
fn a_cut_download_is_told_from_a_damaged_file() {
    let path = testdata::fixture("qwen3_moe").join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for keep in [bytes.len() - 1, bytes.len() / 2, 100] {
        let error = parse_header(&bytes[..keep], keep as u64, &path).unwrap_err();
        assert_eq!(error.fault(), Some(FileFault::Truncated));
        let message = error.to_string();
        assert!(message.contains("model.safetensors") && message.contains("resume"), "{message}");
        assert!(message.contains(&format!("found {keep} bytes")), "{message}");
        let whole = format!("expected {} bytes", bytes.len());
        assert!(keep == 100 || message.contains(&whole), "{message}");
    }
}

/// Half-precision log-probabilities of a real model: each row must be a distribution.
#[test]
fn recorded_distributions_sum_to_one() {
    let path = testdata::fixture("tiny-qwen3-next-witness").join("logprobs.safetensors");
    let file = File::open(&path).unwrap();
    let kinds: Vec<&str> = file.tensors().iter().filter_map(|t| t.name.strip_suffix(".logprobs")).collect();
    assert_eq!(kinds.len(), 4);
    for kind in kinds {
        let info = file.tensor(&format!("{kind}.logprobs")).unwrap();
        assert_eq!((info.dtype, info.rows(), info.columns()), (Dtype::F16, 256, 4096));
        assert_eq!(file.i64(&format!("{kind}.input_ids")).unwrap().len(), 256);
        for row in file.f32(&info.name).unwrap().chunks_exact(4096).step_by(51) {
            let sum: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-2, "{kind}: {sum}");
        }
    }
}

#[test]
fn a_folder_and_its_copy_have_one_identity() {
    let folder = testdata::fixture("tiny-qwen3-next");
    let model = Checkpoint::open(&folder).unwrap();
    assert_eq!(eos_ids(&model).unwrap(), [4087, 4089]);
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    assert_eq!(Checkpoint::open(copy.path()).unwrap().identity(), model.identity());
    let config = copy.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("1e-06", "1e-05")).unwrap();
    assert_ne!(Checkpoint::open(copy.path()).unwrap().identity(), model.identity());
}
