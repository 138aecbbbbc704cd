//! Seeded matrices, coded rows and routings for the cases of `linear` and the expert ops.

use base::philox::Stream;
use half::{bf16, f16};

use super::Desc;
use super::layout::{Expert, Matrix, TILE_ROWS};
use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::{Case, Op};

/// What is special about the numbers of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Any codes, ordinary scales; I4 scales of both signs.
    Usual,
    /// Codes of the largest magnitude, of one sign or alternating: the largest sums there are.
    Largest,
    /// Scales that are zero, denormal, smallest normal and huge; groups of zero codes.
    Scales,
}

/// Formats of weights and activations, each with each.
pub(crate) fn formats() -> impl Iterator<Item = (WeightFormat, Acts)> {
    WeightFormat::ALL.into_iter().flat_map(|format| [(format, Acts::A8), (format, Acts::A16)])
}

/// Smallest and largest code of a format.
fn range(format: WeightFormat) -> (i32, i32) {
    match format {
        WeightFormat::I4 => (-8, 7),
        WeightFormat::I8 => (-127, 127),
        WeightFormat::I16 => (-32767, 32767),
        h => (0, (1 << h.bits()) - 1),
    }
}

/// A code in `low..=high` for place `i` of row `row`.
fn code(numbers: Numbers, row: usize, i: usize, (low, high): (i32, i32), random: &mut Stream) -> i32 {
    match numbers {
        Numbers::Largest => match row % 3 {
            0 => high,
            1 => low,
            _ => [low, high][i % 2],
        },
        Numbers::Scales if (row + i / ACT_GROUP) % 4 == 1 => 0,
        _ => low + random.below((high - low + 1) as u32) as i32,
    }
}

fn weight_scale(numbers: Numbers, format: WeightFormat, random: &mut Stream) -> u16 {
    if numbers == Numbers::Scales {
        // 0, the smallest denormal, the smallest normal, 2^40.
        return [0, 1, 0x0080, 0x5380][random.below(4) as usize];
    }
    let sign = if format == WeightFormat::I4 && random.below(2) == 1 { -1.0 } else { 1.0 };
    match format {
        WeightFormat::I16 => bf16::from_f32(2f32.powi(-15 - random.below(6) as i32)).to_bits(),
        _ => bf16::from_f32(sign * (0.001 + 0.02 * random.unit())).to_bits(),
    }
}

fn zero(numbers: Numbers, format: WeightFormat, random: &mut Stream) -> u16 {
    let (_, high) = range(format);
    match (numbers, random.below(4)) {
        (Numbers::Largest, _) => f16::from_f32(high as f32).to_bits(),
        (Numbers::Scales, 0) => 0,
        (Numbers::Scales, 1) => 1,
        _ => f16::from_f32(high as f32 * random.unit()).to_bits(),
    }
}

/// A packed matrix: codes, then scales. Padding is zero.
pub(crate) fn matrix(matrix: &Matrix, numbers: Numbers, random: &mut Stream) -> Vec<u8> {
    let mut bytes = vec![0; matrix.bytes()];
    let (codes, scales) = bytes.split_at_mut(matrix.code_bytes());
    let codes = codes.chunks_exact_mut(matrix.tile_code_bytes());
    let scales = scales.chunks_exact_mut(matrix.tile_scale_bytes());
    let real_groups = matrix.k.div_ceil(matrix.format.group());
    for (index, (codes, scales)) in codes.zip(scales).enumerate() {
        let mut tile = matrix.zero_tile();
        for row in 0..TILE_ROWS.min(matrix.n - index * TILE_ROWS) {
            for k in 0..matrix.k {
                tile.codes[row * matrix.k_padded() + k] =
                    code(numbers, index * TILE_ROWS + row, k, range(matrix.format), random);
            }
            for g in 0..real_groups {
                let at = row * matrix.groups() + g;
                tile.scales[at] = weight_scale(numbers, matrix.format, random);
                if matrix.format.has_zero() {
                    tile.zeros[at] = zero(numbers, matrix.format, random);
                }
            }
        }
        matrix.pack_tile(&tile, codes, scales);
    }
    bytes
}

/// One expert's block.
pub(crate) fn expert(layout: &Expert, numbers: Numbers, random: &mut Stream) -> Vec<u8> {
    let (gate_up, down) = (matrix(&layout.gate_up, numbers, random), matrix(&layout.down, numbers, random));
    let (gate_up, down) =
        (gate_up.split_at(layout.gate_up.code_bytes()), down.split_at(layout.down.code_bytes()));
    let mut block = [gate_up.0, down.0, gate_up.1, down.1].concat();
    block.resize(layout.bytes(), 0);
    block
}

/// Operands `codes` and `scales` of `rows` coded rows. Padding is zero.
pub(crate) fn coded(
    acts: Acts,
    rows: usize,
    k: usize,
    numbers: Numbers,
    random: &mut Stream,
) -> [Vec<u8>; 2] {
    let mut codes = vec![0; rows * acts.row_code_bytes(k)];
    let mut scales = Vec::new();
    for row in 0..rows {
        let out = &mut codes[row * acts.row_code_bytes(k)..][..k * acts.code_bytes()];
        for (i, out) in out.chunks_exact_mut(acts.code_bytes()).enumerate() {
            let code = code(numbers, row, i, (-acts.max_code(), acts.max_code()), random);
            out.copy_from_slice(&code.to_le_bytes()[..acts.code_bytes()]);
        }
        for _ in 0..k.div_ceil(ACT_GROUP) {
            let usual = 0.001 + 0.05 * random.unit();
            let odd = [0.0, f32::from_bits(1), f32::MIN_POSITIVE, 2f32.powi(40)];
            let scale = if numbers == Numbers::Scales { odd[random.below(4) as usize] } else { usual };
            scales.extend_from_slice(&scale.to_le_bytes());
        }
    }
    [codes, scales]
}

/// `linear` with seeded operands.
fn linear(desc: Desc, rows: usize, numbers: Numbers) -> Case<Desc> {
    let mut random = Stream::new((desc.n * 31 + desc.k * 7 + rows) as u64);
    let [codes, scales] = coded(desc.acts, rows, desc.k, numbers, &mut random);
    let weight = matrix(&Matrix::new(desc.format, desc.n, desc.k), numbers, &mut random);
    let mut case = Case::new(format!("{desc:?}, {rows} rows, {numbers:?}"), desc, rows);
    case = case.read(&codes[..]).read(&scales[..]).read(&weight[..]);
    if desc.bias {
        let bias: Vec<f32> = (0..desc.n).map(|_| random.normal()).collect();
        case = case.read(&bias);
    }
    case.output()
}

/// Cases of `linear`: every format and width of codes with every kind of odd size.
pub(super) fn all() -> Vec<Case<Desc>> {
    const SHAPES: [(usize, usize, usize, bool, Numbers); 9] = [
        (40, 200, 3, true, Numbers::Usual),
        (17, 2880, 1, false, Numbers::Usual),
        (1, 64, 7, true, Numbers::Usual),
        (16, 80, 2, false, Numbers::Usual),
        (33, 128, 33, true, Numbers::Usual),
        (17, 256, 5, false, Numbers::Largest),
        (40, 128, 1, true, Numbers::Largest),
        (24, 384, 6, true, Numbers::Scales),
        (16, 128, 130, false, Numbers::Usual),
    ];
    let mut cases = Vec::new();
    for (format, acts) in formats() {
        for (n, k, rows, bias, numbers) in SHAPES {
            cases.push(linear(Desc { n, k, format, acts, bias }, rows, numbers));
        }
    }
    cases
}

/// How rows choose experts in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Routing {
    /// Different experts per row, any.
    Any,
    /// Every row chooses the last experts: many entries there, none elsewhere.
    Last,
}

/// Expert ids `[rows, top_k]`, different within a row.
pub(crate) fn route(
    routing: Routing,
    rows: usize,
    experts: usize,
    top_k: usize,
    random: &mut Stream,
) -> Vec<u32> {
    let mut ids = Vec::new();
    for _ in 0..rows {
        let mut free: Vec<u32> = (0..experts as u32).collect();
        for _ in 0..top_k {
            let pick = match routing {
                Routing::Any => random.below(free.len() as u32) as usize,
                Routing::Last => free.len() - 1,
            };
            ids.push(free.remove(pick));
        }
    }
    ids
}

/// Operands `offsets` and `entries` for `ids`, by a stable sort (another way than op `moe_group`).
pub(crate) fn grouping(ids: &[u32], experts: usize) -> [Vec<u32>; 2] {
    let mut entries: Vec<u32> = (0..ids.len() as u32).collect();
    entries.sort_by_key(|&entry| ids[entry as usize]);
    let offsets = (0..=experts).map(|e| ids.iter().filter(|&&id| (id as usize) < e).count() as u32);
    [offsets.collect(), entries]
}

/// Shape of a case of an expert op.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertShape {
    pub experts: usize,
    pub top_k: usize,
    pub hidden: usize,
    pub inter: usize,
    pub rows: usize,
    pub routing: Routing,
    pub numbers: Numbers,
}

/// Shapes for every format: few and many rows, odd widths, one expert with all entries.
pub(crate) const EXPERT_SHAPES: [ExpertShape; 6] = {
    const fn shape(size: [usize; 5], routing: Routing, numbers: Numbers) -> ExpertShape {
        let [experts, top_k, hidden, inter, rows] = size;
        ExpertShape { experts, top_k, hidden, inter, rows, routing, numbers }
    }
    [
        shape([8, 3, 128, 64, 1], Routing::Any, Numbers::Usual),
        shape([4, 2, 200, 40, 7], Routing::Any, Numbers::Usual),
        shape([5, 5, 64, 17, 2], Routing::Any, Numbers::Largest),
        shape([3, 1, 80, 136, 33], Routing::Last, Numbers::Usual),
        shape([6, 2, 160, 24, 70], Routing::Any, Numbers::Scales),
        shape([9, 2, 2880, 8, 3], Routing::Last, Numbers::Usual),
    ]
};

/// Adds the reads `codes`, `scales`, `offsets`, `entries` of an expert op and the layer's blocks; `None` for
/// experts that no row routes to.
pub(crate) fn expert_operands<D: Op>(
    case: Case<D>,
    shape: &ExpertShape,
    format: WeightFormat,
    acts: Acts,
    (coded_rows, k): (usize, usize),
) -> Case<D> {
    let mut random = Stream::new((shape.hidden * 31 + shape.inter * 7 + shape.rows) as u64);
    let ids = route(shape.routing, shape.rows, shape.experts, shape.top_k, &mut random);
    let [codes, scales] = coded(acts, coded_rows, k, shape.numbers, &mut random);
    let [offsets, entries] = grouping(&ids, shape.experts);
    let layout = Expert::new(format, shape.hidden, shape.inter);
    let mut block = |e| ids.contains(&e).then(|| expert(&layout, shape.numbers, &mut random));
    let experts = (0..shape.experts as u32).map(&mut block).collect();
    let case = case.read(&codes[..]).read(&scales[..]).read(&offsets[..]).read(&entries[..]);
    Case { experts, ..case }
}
