//! Formats of weights, activations and KV codes (docs/arithmetic.md §1, §2, §4).

use std::str::FromStr;

/// How a weight matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// Codes -8..7, one bf16 scale (it may be negative) per 128.
    I4,
    /// Codes 0..15, bf16 scale and f16 zero per 64.
    H4,
    /// Codes 0..63, bf16 scale and f16 zero per 64.
    H6,
    /// Codes 0..255, bf16 scale and f16 zero per 64.
    H8,
    /// Codes -127..127, bf16 scale per 128.
    I8,
    /// Codes -32767..32767, power-of-two scale (stored as bf16) per 128.
    I16,
}

impl WeightFormat {
    /// All formats.
    pub const ALL: [WeightFormat; 6] = [
        WeightFormat::I4,
        WeightFormat::H4,
        WeightFormat::H6,
        WeightFormat::H8,
        WeightFormat::I8,
        WeightFormat::I16,
    ];

    /// Weights along K that share a scale.
    pub const fn group(self) -> usize {
        match self {
            WeightFormat::H4 | WeightFormat::H6 | WeightFormat::H8 => 64,
            WeightFormat::I4 | WeightFormat::I8 | WeightFormat::I16 => 128,
        }
    }

    /// Bits of one code.
    pub const fn bits(self) -> usize {
        match self {
            WeightFormat::I4 | WeightFormat::H4 => 4,
            WeightFormat::H6 => 6,
            WeightFormat::I8 | WeightFormat::H8 => 8,
            WeightFormat::I16 => 16,
        }
    }

    /// The format has a zero point per group.
    pub const fn has_zero(self) -> bool {
        matches!(self, WeightFormat::H4 | WeightFormat::H6 | WeightFormat::H8)
    }

    /// Name in recipes, cache files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            WeightFormat::I4 => "i4",
            WeightFormat::H4 => "h4",
            WeightFormat::H6 => "h6",
            WeightFormat::H8 => "h8",
            WeightFormat::I8 => "i8",
            WeightFormat::I16 => "i16",
        }
    }
}

impl FromStr for WeightFormat {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = WeightFormat::ALL.into_iter().find(|f| f.name() == s);
        found.ok_or_else(|| format!("{s}: not one of i4, h4, h6, h8, i8, i16"))
    }
}

/// Bits of activation codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Acts {
    /// Codes -127..127, i8; attention P with 8 unsigned bits (R = 255).
    A8,
    /// Codes -32767..32767, i16; attention P with 15 bits (R = 32767).
    A16,
}

/// Activations (and Q) share one scale per so many elements.
pub const ACT_GROUP: usize = 128;

impl Acts {
    /// Largest code, Q of the contract.
    pub const fn max_code(self) -> i32 {
        match self {
            Acts::A8 => 127,
            Acts::A16 => 32767,
        }
    }

    /// Largest code of attention's P, R of the contract.
    pub const fn max_p(self) -> i32 {
        match self {
            Acts::A8 => 255,
            Acts::A16 => 32767,
        }
    }

    /// Bytes of one code.
    pub const fn code_bytes(self) -> usize {
        match self {
            Acts::A8 => 1,
            Acts::A16 => 2,
        }
    }

    /// Bytes of the codes of one row of `k` values: padded with zero codes to whole groups.
    pub const fn row_code_bytes(self, k: usize) -> usize {
        k.div_ceil(ACT_GROUP) * ACT_GROUP * self.code_bytes()
    }

    /// 8 or 16.
    pub const fn bits(self) -> usize {
        self.code_bytes() * 8
    }
}

/// Width of K and V codes. Both have the same width in every profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KvFormat {
    /// 4 bits, Hadamard-rotated.
    K4,
    /// 6 bits, Hadamard-rotated.
    K6,
    /// 8 bits.
    K8,
    /// 16 bits.
    K16,
}

impl KvFormat {
    /// All formats.
    pub const ALL: [KvFormat; 4] = [KvFormat::K4, KvFormat::K6, KvFormat::K8, KvFormat::K16];

    /// Bits of a code.
    pub const fn bits(self) -> usize {
        match self {
            KvFormat::K4 => 4,
            KvFormat::K6 => 6,
            KvFormat::K8 => 8,
            KvFormat::K16 => 16,
        }
    }

    /// Largest code: 2^(bits-1) - 1.
    pub const fn max_code(self) -> i32 {
        (1 << (self.bits() - 1)) - 1
    }

    /// K and Q are rotated when the slice is a power of two: part of the format's identity.
    pub const fn rotated(self) -> bool {
        matches!(self, KvFormat::K4 | KvFormat::K6)
    }

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            KvFormat::K4 => "k4v4",
            KvFormat::K6 => "k6v6",
            KvFormat::K8 => "k8v8",
            KvFormat::K16 => "k16v16",
        }
    }
}

impl FromStr for KvFormat {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = KvFormat::ALL.into_iter().find(|f| f.name() == s);
        found.ok_or_else(|| format!("{s}: not one of k4v4, k6v6, k8v8, k16v16"))
    }
}

/// `f32(n^-1/2)`: computed in f64, rounded once (the scale of scores and of DeltaNet queries).
pub fn inverse_sqrt(n: usize) -> f32 {
    (1.0 / (n as f64).sqrt()) as f32
}
