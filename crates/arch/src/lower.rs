//! Lowering: (Model, Recipe) → Program. The same for all families; what differs is data in the model.

use base::LayerId;
use ops::combine::Shared;
use ops::{Acts, Dims, OpDesc};

use crate::model::{Attention, Ffn, GatedDelta, Mixer, Model, Moe};
use crate::program::{
    Buffer, BufferId, CONTEXT_STEP, Operand, Program, RouterBuffers, Rows, StateId, StateKind, StateSpec,
    Step, Table, probe,
};
use crate::recipe::{Recipe, RoleClass};
use crate::role::{Part, Role};

/// Lowers a model once for a recipe. `Err` names what an op refuses.
pub fn lower(model: &Model, recipe: &Recipe) -> Result<Program, base::Refusal> {
    let mut lowering = Lowering {
        model,
        recipe,
        layer: None,
        rows: Rows::Chunk,
        steps: Vec::new(),
        buffers: Vec::new(),
        states: Vec::new(),
        routers: Vec::new(),
        error: None,
    };
    let embed = ops::embed::Desc { vocab: model.vocab, hidden: model.hidden };
    let table = Operand::Weight(Role::global(Part::Embedding));
    let x = lowering.step("embed", embed, &[Operand::Ids, table]);
    for (index, layer) in model.layers.iter().enumerate() {
        lowering.layer = Some(LayerId(index as u32));
        let mixed = match &layer.mixer {
            Mixer::Attention(a) => lowering.attention(x, a),
            Mixer::GatedDelta(d) => lowering.gated_delta(x, d),
        };
        lowering.residual("mixer.add", x, mixed);
        let y = match &layer.ffn {
            Ffn::Moe(moe) => lowering.moe(x, moe),
            Ffn::Dense { inter } => lowering.dense(x, *inter),
        };
        lowering.residual("ffn.add", x, y);
    }
    lowering.layer = None;
    let head = lowering.steps.len() as u32;
    let (logits, digests) = lowering.head(x);
    if let Some(error) = lowering.error {
        return Err(error);
    }
    // The head runs once per block of rows: what it reads of the chunk must outlive all of them.
    let end = lowering.steps.len() as u32 - 1;
    let kept = lowering.buffers.iter_mut().filter(|b| b.rows == Rows::Chunk && b.last >= head);
    kept.for_each(|b| b.last = end);
    let has_attention = model.layers.iter().any(|l| matches!(l.mixer, Mixer::Attention(_)));
    Ok(Program {
        family: model.family,
        steps: lowering.steps,
        head,
        buffers: lowering.buffers,
        states: lowering.states,
        table: has_attention.then(|| Table { rope: model.rope.clone() }),
        logits,
        digests,
        routers: lowering.routers,
        vocab: model.vocab,
    })
}

/// Codes and scales of some activations.
#[derive(Clone, Copy)]
struct Coded {
    codes: BufferId,
    scales: BufferId,
    acts: Acts,
}

struct Lowering<'a> {
    model: &'a Model,
    recipe: &'a Recipe,
    layer: Option<LayerId>,
    rows: Rows,
    steps: Vec<Step>,
    buffers: Vec<Buffer>,
    states: Vec<StateSpec>,
    routers: Vec<RouterBuffers>,
    error: Option<base::Refusal>,
}

impl Lowering<'_> {
    fn role(&self, part: Part) -> Role {
        Role { layer: self.layer, part }
    }

    /// Appends a step with given operands; remembers the first refusal.
    fn push(&mut self, name: &'static str, desc: OpDesc, reads: Vec<Operand>, writes: Vec<Operand>) -> u32 {
        let id = self.steps.len() as u32;
        if let Err(error) = desc.validate() {
            self.error.get_or_insert(error);
        }
        for operand in reads.iter().chain(&writes) {
            if let Operand::Buffer(b) = operand {
                self.buffers[b.0 as usize].last = id;
            }
        }
        self.steps.push(Step { id, layer: self.layer, name, desc, reads, writes });
        id
    }

    /// Bytes of written operand `index` at one and at two units. An op computes shapes of valid descriptors
    /// only: of others the first refusal is remembered.
    fn probed(&mut self, desc: &OpDesc, index: usize, dims: impl Fn(usize) -> Dims) -> [usize; 2] {
        match desc.validate() {
            Ok(()) => [1, 2].map(|n| probe(desc, index, dims(n))),
            Err(error) => {
                self.error.get_or_insert(error);
                [0, 0]
            }
        }
    }

    /// A buffer for written operand `index` of `desc`, sized by the op itself.
    fn buffer(&mut self, name: &'static str, suffix: &str, desc: &OpDesc, index: usize) -> BufferId {
        let [one, two] = self.probed(desc, index, |n| Dims { rows: n, context: 1, sequences: 1 });
        let layer = self.layer.map_or(String::new(), |l| format!("{l}."));
        self.buffers.push(Buffer {
            name: format!("{layer}{name}{suffix}"),
            rows: self.rows,
            row_bytes: two - one,
            fixed_bytes: 2 * one - two,
            first: self.steps.len() as u32,
            last: self.steps.len() as u32,
        });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// A step with one output buffer.
    fn step(&mut self, name: &'static str, desc: impl Into<OpDesc>, reads: &[Operand]) -> BufferId {
        let desc = desc.into();
        let out = self.buffer(name, "", &desc, 0);
        self.push(name, desc, reads.to_vec(), vec![Operand::Buffer(out)]);
        out
    }

    fn state(&mut self, kind: StateKind, desc: &OpDesc, index: usize) -> StateId {
        let dims = |n| Dims { rows: 1, context: n * CONTEXT_STEP, sequences: 1 };
        let [one, two] = self.probed(desc, index, dims);
        let layer = self.layer.expect("only layers keep state");
        let token_bytes = (two - one) / CONTEXT_STEP;
        self.states.push(StateSpec { layer, kind, fixed_bytes: 2 * one - two, token_bytes });
        StateId(self.states.len() as u32 - 1)
    }

    fn norm(&mut self, name: &'static str, x: BufferId, part: Part, heads: usize, width: usize) -> BufferId {
        let desc = ops::rmsnorm::Desc { heads, width, eps: self.model.eps };
        self.step(name, desc, &[Operand::Buffer(x), Operand::Weight(self.role(part))])
    }

    fn code(&mut self, name: &'static str, x: BufferId, times: usize, k: usize, acts: Acts) -> Coded {
        let desc: OpDesc = ops::code::Desc { times, k, acts }.into();
        let codes = self.buffer(name, ".codes", &desc, 0);
        let scales = self.buffer(name, ".scales", &desc, 1);
        let writes = vec![Operand::Buffer(codes), Operand::Buffer(scales)];
        self.push(name, desc, vec![Operand::Buffer(x)], writes);
        Coded { codes, scales, acts }
    }

    /// A linear layer of a part; `bias` names the part of its bias, if it has one.
    fn linear(
        &mut self,
        name: &'static str,
        x: Coded,
        part: Part,
        bias: Option<Part>,
        n: usize,
        k: usize,
    ) -> BufferId {
        let format = self.recipe.format(part.class().expect("linear parts have a class"));
        let desc = ops::linear::Desc { n, k, format, acts: x.acts, bias: bias.is_some() };
        let mut reads =
            vec![Operand::Buffer(x.codes), Operand::Buffer(x.scales), Operand::Weight(self.role(part))];
        reads.extend(bias.map(|b| Operand::Weight(self.role(b))));
        self.step(name, desc, &reads)
    }

    fn residual(&mut self, name: &'static str, x: BufferId, y: BufferId) {
        let desc = ops::add::Desc { width: self.model.hidden };
        self.push(name, desc.into(), vec![Operand::Buffer(y)], vec![Operand::Buffer(x)]);
    }

    fn rope(&mut self, name: &'static str, x: BufferId, heads: usize, head_dim: usize) {
        let desc = ops::rope::Desc { heads, head_dim, rotary: self.model.rope.rotary };
        self.push(name, desc.into(), vec![Operand::Table], vec![Operand::Buffer(x)]);
    }

    fn attention(&mut self, x: BufferId, a: &Attention) -> BufferId {
        let (hidden, acts, kv) = (self.model.hidden, self.recipe.acts, self.recipe.kv);
        let (q_width, kv_width) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let bias = |part| a.bias.then_some(part);
        let n = self.norm("mixer.norm", x, Part::MixerNorm, 1, hidden);
        let n = self.code("mixer.in", n, 1, hidden, acts);
        let mut q = self.linear("q", n, Part::AttnQ, bias(Part::AttnQBias), q_width, hidden);
        let gate =
            a.gate.then(|| self.linear("gate", n, Part::AttnGate, bias(Part::AttnGateBias), q_width, hidden));
        let mut k = self.linear("k", n, Part::AttnK, bias(Part::AttnKBias), kv_width, hidden);
        let v = self.linear("v", n, Part::AttnV, bias(Part::AttnVBias), kv_width, hidden);
        if a.qk_norm {
            q = self.norm("q.norm", q, Part::QNorm, a.heads, a.head_dim);
            k = self.norm("k.norm", k, Part::KNorm, a.kv_heads, a.head_dim);
        }
        self.rope("q.rope", q, a.heads, a.head_dim);
        self.rope("k.rope", k, a.kv_heads, a.head_dim);
        let write: OpDesc = ops::kv_write::Desc { kv_heads: a.kv_heads, head_dim: a.head_dim, kv }.into();
        let state = Operand::State(self.state(StateKind::Kv, &write, 0));
        self.push("kv.write", write, vec![Operand::Buffer(k), Operand::Buffer(v)], vec![state]);
        let desc = ops::attention::Desc {
            heads: a.heads,
            kv_heads: a.kv_heads,
            head_dim: a.head_dim,
            acts,
            kv,
            scale: ops::inverse_sqrt(a.head_dim),
        };
        let o = self.step("attention", desc, &[Operand::Buffer(q), state]);
        if let Some(gate) = gate {
            let desc = ops::sigmoid_mul::Desc { width: q_width };
            self.push("o.gate", desc.into(), vec![Operand::Buffer(gate)], vec![Operand::Buffer(o)]);
        }
        let o = self.code("o.in", o, 1, q_width, acts);
        self.linear("o", o, Part::AttnO, bias(Part::AttnOBias), hidden, q_width)
    }

    fn gated_delta(&mut self, x: BufferId, d: &GatedDelta) -> BufferId {
        let (hidden, acts, values) = (self.model.hidden, self.recipe.acts, d.value_heads * d.dv);
        let n = self.norm("mixer.norm", x, Part::MixerNorm, 1, hidden);
        let coded = self.code("mixer.in", n, 1, hidden, acts);
        let exact = self.exact_codes("mixer.in16", n, coded);
        let qkv = self.linear("qkv", coded, Part::DeltaQkv, None, d.channels(), hidden);
        let z = self.linear("z", coded, Part::DeltaZ, None, values, hidden);
        let ba = self.linear("ba", exact, Part::DeltaBa, None, 2 * d.value_heads, hidden);
        let conv: OpDesc = ops::conv::Desc { channels: d.channels(), kernel: d.kernel }.into();
        let u = self.buffer("conv", "", &conv, 0);
        let tail = Operand::State(self.state(StateKind::ConvTail, &conv, 1));
        let taps = Operand::Weight(self.role(Part::DeltaConv));
        self.push("conv", conv, vec![Operand::Buffer(qkv), taps], vec![Operand::Buffer(u), tail]);
        let delta: OpDesc =
            ops::gated_delta::Desc { key_heads: d.key_heads, value_heads: d.value_heads, dk: d.dk, dv: d.dv }
                .into();
        let o = self.buffer("delta", "", &delta, 0);
        let state = Operand::State(self.state(StateKind::Delta, &delta, 1));
        let reads = vec![
            Operand::Buffer(u),
            Operand::Buffer(ba),
            Operand::Weight(self.role(Part::DeltaDecay)),
            Operand::Weight(self.role(Part::DeltaDtBias)),
        ];
        self.push("delta", delta, reads, vec![Operand::Buffer(o), state]);
        let norm = ops::gated_norm::Desc { heads: d.value_heads, width: d.dv, eps: self.model.eps };
        let weight = Operand::Weight(self.role(Part::DeltaNorm));
        let o = self.step("delta.norm", norm, &[Operand::Buffer(o), Operand::Buffer(z), weight]);
        let o = self.code("out.in", o, 1, values, acts);
        self.linear("out", o, Part::DeltaOut, None, hidden, values)
    }

    /// 16-bit codes of `x`: those there already, if they have 16 bits.
    fn exact_codes(&mut self, name: &'static str, x: BufferId, coded: Coded) -> Coded {
        match coded.acts {
            Acts::A16 => coded,
            Acts::A8 => self.code(name, x, 1, self.model.hidden, Acts::A16),
        }
    }

    /// silu(gate)·up through `down`, for shared and dense FFNs.
    fn swiglu(&mut self, names: [&'static str; 5], n: Coded, parts: [Part; 3], inter: usize) -> BufferId {
        let hidden = self.model.hidden;
        let gate = self.linear(names[0], n, parts[0], None, inter, hidden);
        let up = self.linear(names[1], n, parts[1], None, inter, hidden);
        let desc = ops::swiglu::Desc { width: inter };
        let h = self.step(names[2], desc, &[Operand::Buffer(gate), Operand::Buffer(up)]);
        let h = self.code(names[3], h, 1, inter, self.recipe.acts);
        self.linear(names[4], h, parts[2], None, hidden, inter)
    }

    fn dense(&mut self, x: BufferId, inter: usize) -> BufferId {
        let n = self.norm("ffn.norm", x, Part::FfnNorm, 1, self.model.hidden);
        let n = self.code("ffn.in", n, 1, self.model.hidden, self.recipe.acts);
        let names = ["dense.gate", "dense.up", "dense.act", "dense.in", "dense.down"];
        self.swiglu(names, n, [Part::DenseGate, Part::DenseUp, Part::DenseDown], inter)
    }

    fn moe(&mut self, x: BufferId, moe: &Moe) -> BufferId {
        let (hidden, acts) = (self.model.hidden, self.recipe.acts);
        let n = self.norm("ffn.norm", x, Part::FfnNorm, 1, hidden);
        let coded = self.code("ffn.in", n, 1, hidden, acts);
        let exact = self.exact_codes("ffn.in16", n, coded);
        let (weights, offsets, entries) = self.route(exact, moe);
        let e = self.experts(coded, offsets, entries, moe);
        let mut reads = vec![Operand::Buffer(e), Operand::Buffer(weights)];
        let mut shared = Shared::None;
        if let Some(inter) = moe.shared_inter {
            let names = ["shared.gate", "shared.up", "shared.act", "shared.in", "shared.down"];
            let parts = [Part::SharedGate, Part::SharedUp, Part::SharedDown];
            let s = self.swiglu(names, coded, parts, inter);
            let gate = self.linear("shared.expert_gate", exact, Part::SharedExpertGate, None, 1, hidden);
            reads.extend([Operand::Buffer(s), Operand::Buffer(gate)]);
            shared = Shared::Gated;
        }
        self.step("combine", ops::combine::Desc { hidden, top_k: moe.top_k, shared }, &reads)
    }

    fn route(&mut self, exact: Coded, moe: &Moe) -> (BufferId, BufferId, BufferId) {
        let logits = self.linear("router", exact, Part::Router, None, moe.experts, self.model.hidden);
        let route: OpDesc = ops::route::Desc {
            experts: moe.experts,
            top_k: moe.top_k,
            renormalise: moe.renormalise,
            factor: 1.0,
            table: moe.table,
        }
        .into();
        let ids = self.buffer("route", ".ids", &route, 0);
        let weights = self.buffer("route", ".weights", &route, 1);
        let outputs = vec![Operand::Buffer(ids), Operand::Buffer(weights)];
        let mut reads = vec![Operand::Buffer(logits)];
        reads.extend(moe.table.then(|| Operand::Weight(self.role(Part::RouterTable))));
        let step = self.push("route", route, reads, outputs);
        let layer = self.layer.expect("routers belong to layers");
        self.routers.push(RouterBuffers { layer, step, ids, weights, top_k: moe.top_k });
        let group: OpDesc = ops::moe_group::Desc { experts: moe.experts, top_k: moe.top_k }.into();
        let offsets = self.buffer("group", ".offsets", &group, 0);
        let entries = self.buffer("group", ".entries", &group, 1);
        let outputs = vec![Operand::Buffer(offsets), Operand::Buffer(entries)];
        self.push("group", group, vec![Operand::Buffer(ids)], outputs);
        (weights, offsets, entries)
    }

    fn experts(&mut self, x: Coded, offsets: BufferId, entries: BufferId, moe: &Moe) -> BufferId {
        let (hidden, format) = (self.model.hidden, self.recipe.format(RoleClass::Experts));
        let (experts, top_k, inter, acts) = (moe.experts, moe.top_k, moe.inter, x.acts);
        let table = Operand::Experts(self.layer.expect("experts belong to layers"));
        let reads =
            |x: Coded| [x.codes, x.scales, offsets, entries].map(Operand::Buffer).into_iter().chain([table]);
        let desc = ops::expert_gate_up::Desc { experts, top_k, hidden, inter, format, acts };
        let h = self.step("experts.gate_up", desc, &reads(x).collect::<Vec<_>>());
        let h = self.code("experts.in", h, top_k, inter, acts);
        let desc = ops::expert_down::Desc { experts, top_k, hidden, inter, format, acts };
        self.step("experts.down", desc, &reads(h).collect::<Vec<_>>())
    }

    fn head(&mut self, x: BufferId) -> (BufferId, BufferId) {
        self.rows = Rows::Head;
        let (hidden, vocab, acts) = (self.model.hidden, self.model.vocab, self.recipe.acts);
        let select = ops::select::Desc { width: hidden };
        let x = self.step("select", select, &[Operand::Buffer(x), Operand::HeadRows]);
        let n = self.norm("head.norm", x, Part::FinalNorm, 1, hidden);
        let n = self.code("head.in", n, 1, hidden, acts);
        let logits = self.linear("head", n, Part::Head, None, vocab, hidden);
        let digests = self.step("digest", ops::digest::Desc { width: vocab }, &[Operand::Buffer(logits)]);
        (logits, digests)
    }
}
