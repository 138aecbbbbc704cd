//! The manifest: everything a weight cache must hold, in program order, with where it comes from.

use base::{ExpertId, LayerId};
use ops::linear::layout;
use ops::route::TABLE_ROWS;

use crate::model::{Ffn, GatedDelta, Mixer, Model};
use crate::recipe::{Recipe, RoleClass};
use crate::role::{Part, Role};

/// Consecutive rows of a hub tensor, seen as `[product of leading dimensions, last dimension]`. For vectors
/// (`EntryKind::Vector`) rows count elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSlice {
    /// Name in the checkpoint.
    pub tensor: String,
    /// First row.
    pub row: usize,
    /// Rows.
    pub rows: usize,
}

/// Where an entry's content comes from: the parts below one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Row ranges in order.
    pub parts: Vec<RowSlice>,
}

impl Source {
    /// One range.
    pub fn whole(slice: RowSlice) -> Self {
        Source { parts: vec![slice] }
    }

    /// All rows.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|p| p.rows).sum()
    }
}

/// What happens to a vector at build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// Stored as it is, as f32.
    Plain,
    /// `1 + w` in f32.
    OnePlus,
    /// `-exp(w)` in f64, rounded once.
    NegExp,
}

/// Form of a dense entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A packed matrix.
    Matrix(layout::Matrix),
    /// bf16 rows, exact.
    Embedding {
        /// Vocabulary.
        rows: usize,
        /// Hidden width.
        cols: usize,
    },
    /// f32 elements.
    Vector {
        /// Elements.
        len: usize,
        /// What happens at build.
        transform: Transform,
    },
    /// f32 `[channels, kernel]`, oldest tap first.
    Conv {
        /// Channels.
        channels: usize,
        /// Taps.
        kernel: usize,
    },
    /// u32 expert ids `[ops::route::TABLE_ROWS, top_k]`. No checkpoint has it.
    Table {
        /// Routed experts per position.
        top_k: usize,
    },
}

impl EntryKind {
    /// Bytes in the cache.
    pub fn bytes(&self) -> usize {
        match self {
            EntryKind::Matrix(m) => m.bytes(),
            EntryKind::Embedding { rows, cols } => 2 * rows * cols,
            EntryKind::Vector { len, .. } => 4 * len,
            EntryKind::Conv { channels, kernel } => 4 * channels * kernel,
            EntryKind::Table { top_k } => 4 * TABLE_ROWS * top_k,
        }
    }

    /// Parameters. Ids are none.
    pub fn elements(&self) -> usize {
        match self {
            EntryKind::Matrix(m) => m.n * m.k,
            EntryKind::Embedding { rows, cols } => rows * cols,
            EntryKind::Vector { len, .. } => *len,
            EntryKind::Conv { channels, kernel } => channels * kernel,
            EntryKind::Table { .. } => 0,
        }
    }

    /// Rows and columns the sources must have together (vectors: elements and 1).
    pub fn source_shape(&self) -> (usize, usize) {
        match self {
            EntryKind::Matrix(m) => (m.n, m.k),
            EntryKind::Embedding { rows, cols } => (*rows, *cols),
            EntryKind::Vector { len, .. } => (*len, 1),
            EntryKind::Conv { channels, kernel } => (*channels, *kernel),
            EntryKind::Table { top_k } => (TABLE_ROWS, *top_k),
        }
    }
}

/// A dense entry of the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What it is.
    pub role: Role,
    /// Its form.
    pub kind: EntryKind,
    /// Where it comes from.
    pub source: Source,
}

/// A routed expert of the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertEntry {
    /// Layer.
    pub layer: LayerId,
    /// Expert.
    pub expert: ExpertId,
    /// Gate projection `[inter, hidden]`.
    pub gate: Source,
    /// Up projection `[inter, hidden]`.
    pub up: Source,
    /// Down projection `[hidden, inter]`.
    pub down: Source,
}

/// The experts of one layer: equal blocks, contiguous in the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertLayer {
    /// Layer.
    pub layer: LayerId,
    /// Width of the model.
    pub hidden: usize,
    /// Width of an expert.
    pub inter: usize,
    /// Layout of a block.
    pub block: layout::Expert,
    /// Experts by id.
    pub experts: Vec<ExpertEntry>,
}

/// Everything a cache of a (model, recipe) holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Dense entries in program order.
    pub dense: Vec<Entry>,
    /// MoE layers in order.
    pub experts: Vec<ExpertLayer>,
}

impl Manifest {
    /// Lists what `recipe` makes of `model`.
    pub fn new(model: &Model, recipe: &Recipe) -> Self {
        let mut list = List { model, recipe, dense: Vec::new() };
        list.embedding();
        for (index, layer) in model.layers.iter().enumerate() {
            list.layer(index, &layer.mixer, &layer.ffn);
        }
        list.vector(Role::global(Part::FinalNorm), model.hidden, norm(model));
        list.matrix(Role::global(Part::Head), model.vocab, model.hidden);
        let experts = model
            .moe_layers()
            .map(|(layer, moe)| {
                let format = recipe.format(RoleClass::Experts);
                let entry = |e: usize| {
                    let expert = ExpertId(e as u32);
                    let [gate, up, down] = moe.expert_sources(model.hidden, expert);
                    ExpertEntry { layer, expert, gate, up, down }
                };
                ExpertLayer {
                    layer,
                    hidden: model.hidden,
                    inter: moe.inter,
                    block: layout::Expert::new(format, model.hidden, moe.inter),
                    experts: (0..moe.experts).map(entry).collect(),
                }
            })
            .collect();
        Manifest { dense: list.dense, experts }
    }

    /// Names of all tensors the manifest reads.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        let dense = self.dense.iter().flat_map(|e| &e.source.parts);
        let experts = self.experts.iter().flat_map(|l| &l.experts);
        let experts = experts.flat_map(|e| e.gate.parts.iter().chain(&e.up.parts).chain(&e.down.parts));
        dense.chain(experts).map(|p| p.tensor.as_str())
    }
}

fn norm(model: &Model) -> Transform {
    if model.norm_plus_one { Transform::OnePlus } else { Transform::Plain }
}

struct List<'a> {
    model: &'a Model,
    recipe: &'a Recipe,
    dense: Vec<Entry>,
}

impl List<'_> {
    fn push(&mut self, role: Role, kind: EntryKind) {
        let source = self.model.sources.get(&role);
        let source = source.unwrap_or_else(|| panic!("family file gives no source for {role}")).clone();
        assert_eq!(source.rows(), kind.source_shape().0, "rows of {role}");
        self.dense.push(Entry { role, kind, source });
    }

    fn matrix(&mut self, role: Role, n: usize, k: usize) {
        let class = role.part.class().expect("matrices have a class");
        self.push(role, EntryKind::Matrix(layout::Matrix::new(self.recipe.format(class), n, k)));
    }

    fn vector(&mut self, role: Role, len: usize, transform: Transform) {
        self.push(role, EntryKind::Vector { len, transform });
    }

    fn embedding(&mut self) {
        let kind = EntryKind::Embedding { rows: self.model.vocab, cols: self.model.hidden };
        self.push(Role::global(Part::Embedding), kind);
    }

    fn layer(&mut self, index: usize, mixer: &Mixer, ffn: &Ffn) {
        let (hidden, norm) = (self.model.hidden, norm(self.model));
        self.vector(Role::of(index, Part::MixerNorm), hidden, norm);
        match mixer {
            Mixer::Attention(a) => self.attention(index, a),
            Mixer::GatedDelta(d) => self.gated_delta(index, d),
        }
        self.vector(Role::of(index, Part::FfnNorm), hidden, norm);
        match ffn {
            Ffn::Moe(moe) => {
                self.matrix(Role::of(index, Part::Router), moe.experts, hidden);
                if moe.table {
                    self.push(Role::of(index, Part::RouterTable), EntryKind::Table { top_k: moe.top_k });
                }
                if let Some(inter) = moe.shared_inter {
                    self.matrix(Role::of(index, Part::SharedGate), inter, hidden);
                    self.matrix(Role::of(index, Part::SharedUp), inter, hidden);
                    self.matrix(Role::of(index, Part::SharedDown), hidden, inter);
                    self.matrix(Role::of(index, Part::SharedExpertGate), 1, hidden);
                }
            }
            Ffn::Dense { inter } => {
                self.matrix(Role::of(index, Part::DenseGate), *inter, hidden);
                self.matrix(Role::of(index, Part::DenseUp), *inter, hidden);
                self.matrix(Role::of(index, Part::DenseDown), hidden, *inter);
            }
        }
    }

    fn attention(&mut self, index: usize, a: &crate::model::Attention) {
        let (hidden, q, kv) = (self.model.hidden, a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let mut projection = |part: Part, bias: Part, n: usize, k: usize| {
            self.matrix(Role::of(index, part), n, k);
            if a.bias {
                self.vector(Role::of(index, bias), n, Transform::Plain);
            }
        };
        projection(Part::AttnQ, Part::AttnQBias, q, hidden);
        if a.gate {
            projection(Part::AttnGate, Part::AttnGateBias, q, hidden);
        }
        projection(Part::AttnK, Part::AttnKBias, kv, hidden);
        projection(Part::AttnV, Part::AttnVBias, kv, hidden);
        projection(Part::AttnO, Part::AttnOBias, hidden, q);
        if a.qk_norm {
            self.vector(Role::of(index, Part::QNorm), a.head_dim, norm(self.model));
            self.vector(Role::of(index, Part::KNorm), a.head_dim, norm(self.model));
        }
    }

    fn gated_delta(&mut self, index: usize, d: &GatedDelta) {
        let (hidden, values) = (self.model.hidden, d.value_heads * d.dv);
        self.matrix(Role::of(index, Part::DeltaQkv), d.channels(), hidden);
        self.matrix(Role::of(index, Part::DeltaZ), values, hidden);
        self.matrix(Role::of(index, Part::DeltaBa), 2 * d.value_heads, hidden);
        let conv = EntryKind::Conv { channels: d.channels(), kernel: d.kernel };
        self.push(Role::of(index, Part::DeltaConv), conv);
        self.vector(Role::of(index, Part::DeltaDecay), d.value_heads, Transform::NegExp);
        self.vector(Role::of(index, Part::DeltaDtBias), d.value_heads, Transform::Plain);
        self.vector(Role::of(index, Part::DeltaNorm), d.dv, Transform::Plain);
        self.matrix(Role::of(index, Part::DeltaOut), hidden, values);
    }
}
