//! Which sections a manifest becomes, in file order, and what identifies the manifest.

use std::fmt::Write;

use arch::manifest::ExpertLayer;
use arch::{EntryKind, Manifest, Source, Transform};
use base::hash::Digest;
use ops::route::TABLE_ROWS;

use crate::header::{CHECKSUMS, Content};

/// Sections of a manifest: dense roles in its order, the experts of each layer, the experts' checksums.
pub fn contents(manifest: &Manifest) -> Vec<(String, Content)> {
    let dense = manifest.dense.iter().map(|e| (e.role.to_string(), content(&e.kind)));
    let experts = manifest.experts.iter().map(|l| (experts_name(l), experts_content(l)));
    let count: usize = manifest.experts.iter().map(|l| l.experts.len()).sum();
    let checksums = (count > 0).then(|| (CHECKSUMS.to_string(), Content::Checksums { experts: count }));
    dense.chain(experts).chain(checksums).collect()
}

fn content(kind: &EntryKind) -> Content {
    match *kind {
        EntryKind::Matrix(m) => Content::Matrix { format: m.format.name().into(), n: m.n, k: m.k },
        EntryKind::Embedding { rows, cols } => Content::Bf16 { rows, columns: cols },
        EntryKind::Vector { len, .. } => Content::F32 { rows: len, columns: 1 },
        EntryKind::Conv { channels, kernel } => Content::F32 { rows: channels, columns: kernel },
        EntryKind::Table { top_k } => Content::U32 { rows: TABLE_ROWS, columns: top_k },
    }
}

fn experts_name(layer: &ExpertLayer) -> String {
    format!("layers.{}.experts", layer.layer)
}

fn experts_content(layer: &ExpertLayer) -> Content {
    Content::Experts {
        layer: layer.layer.0,
        format: layer.block.gate_up.format.name().into(),
        experts: layer.experts.len(),
        hidden: layer.hidden,
        inter: layer.inter,
    }
}

/// Digest of what goes where: form, transform and source rows of every entry. A cache made under another
/// reading of the same checkpoint has another one.
pub fn manifest_digest(manifest: &Manifest) -> Digest {
    let mut text = String::from("manifest 1\n");
    let form = |c: &Content| serde_json::to_string(c).expect("strings and numbers are always JSON");
    let mut line = |name: std::fmt::Arguments, form: std::fmt::Arguments, source: &Source| {
        let _ = write!(text, "{name} {form}"); // writing to a String never fails
        for part in &source.parts {
            let _ = write!(text, " {}[{}+{}]", part.tensor, part.row, part.rows);
        }
        text.push('\n');
    };
    for entry in &manifest.dense {
        let transform = match entry.kind {
            EntryKind::Vector { transform: Transform::OnePlus, .. } => " 1+w",
            EntryKind::Vector { transform: Transform::NegExp, .. } => " -exp(w)",
            _ => "",
        };
        let form = form(&content(&entry.kind));
        line(format_args!("{}", entry.role), format_args!("{form}{transform}"), &entry.source);
    }
    for layer in &manifest.experts {
        let (name, form) = (experts_name(layer), form(&experts_content(layer)));
        for e in &layer.experts {
            for (part, source) in [("gate", &e.gate), ("up", &e.up), ("down", &e.down)] {
                line(format_args!("{name}.{}.{part}", e.expert), format_args!("{form}"), source);
            }
        }
    }
    Digest::of(text.as_bytes())
}
