//! Shapes of published models.

use base::Refusal;

use super::{Family, Shape, ShapeChoice};

/// A published model whose shape can be made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// Qwen3-30B-A3B, as of its release 2507.
    Qwen330bA3b,
    /// Qwen3-Coder-Next, 80B.
    Qwen3CoderNext,
}

impl Named {
    /// All of them.
    pub const ALL: [Named; 2] = [Named::Qwen330bA3b, Named::Qwen3CoderNext];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Named::Qwen330bA3b => "qwen3-30b-a3b",
            Named::Qwen3CoderNext => "qwen3-coder-next",
        }
    }

    /// Its dimensions.
    pub const fn shape(self) -> Shape {
        let of_both = Shape {
            family: Family::Qwen3Moe,
            hidden: 2048,
            layers: 48,
            experts: 128,
            top_k: 8,
            inter: 768,
            heads: 32,
            kv_heads: 4,
            head_dim: 128,
            vocab: 151_936,
            key_heads: 16,
            value_heads: 32,
            linear_dim: 128,
            dense_inter: 6144,
            positions: 262_144,
            theta: 10_000_000,
        };
        match self {
            Named::Qwen330bA3b => of_both,
            Named::Qwen3CoderNext => Shape {
                family: Family::Qwen3Next,
                experts: 512,
                top_k: 10,
                inter: 512,
                heads: 16,
                kv_heads: 2,
                head_dim: 256,
                dense_inter: 5120,
                theta: 5_000_000,
                ..of_both
            },
        }
    }

    /// Its shape with the given dimensions in place of its own. Errors: a dimension that is 0, too large or
    /// no divisor of another; a size, which has no meaning here.
    pub fn cut(self, choice: &ShapeChoice) -> Result<Shape, Refusal> {
        if choice.size_bytes.is_some() {
            let limit = "only without the name of a published model";
            return Err(Refusal::value("size", "given", limit, "cut layers or experts instead"));
        }
        let shape = choice.over(self.shape());
        shape.check()?;
        Ok(shape)
    }
}
