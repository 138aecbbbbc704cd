//! Data types of stored tensors and their exact conversion to f32.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Data type of a stored tensor (those of the safetensors format whose elements are whole bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8E5M2,
    /// The form without infinities; see [`F8_E4M3_VALUES`].
    F8E4M3,
    /// A power of two, 2^(byte − 127).
    F8E8M0,
    I16,
    U16,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    I32,
    U32,
    F32,
    I64,
    U64,
    F64,
}

impl Dtype {
    /// All of them.
    pub const ALL: [Dtype; 16] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::F8E5M2,
        Dtype::F8E4M3,
        Dtype::F8E8M0,
        Dtype::I16,
        Dtype::U16,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::I32,
        Dtype::U32,
        Dtype::F32,
        Dtype::I64,
        Dtype::U64,
        Dtype::F64,
    ];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 | Dtype::F8E5M2 | Dtype::F8E4M3 | Dtype::F8E8M0 => 1,
            Dtype::I16 | Dtype::U16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
        }
    }

    /// The name in a safetensors header.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "BOOL",
            Dtype::U8 => "U8",
            Dtype::I8 => "I8",
            Dtype::F8E5M2 => "F8_E5M2",
            Dtype::F8E4M3 => "F8_E4M3",
            Dtype::F8E8M0 => "F8_E8M0",
            Dtype::I16 => "I16",
            Dtype::U16 => "U16",
            Dtype::F16 => "F16",
            Dtype::Bf16 => "BF16",
            Dtype::I32 => "I32",
            Dtype::U32 => "U32",
            Dtype::F32 => "F32",
            Dtype::I64 => "I64",
            Dtype::U64 => "U64",
            Dtype::F64 => "F64",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Whether every value of the type is exactly an f32 and [`Dtype::decode`] converts it.
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F8E4M3 | Dtype::F16 | Dtype::Bf16 | Dtype::F32)
    }

    /// Converts little-endian elements to f32, exactly; infinities and NaNs stay what they are. An F8 code
    /// is converted without any scale. Panics unless [`Dtype::is_float`] and
    /// `bytes.len() == out.len() * self.bytes()`.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), out.len() * self.bytes(), "bytes of {} {} elements", out.len(), self.name());
        match self {
            Dtype::F32 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            Dtype::Bf16 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *o = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
                }
            }
            Dtype::F16 => decode_f16(bytes, out),
            Dtype::F8E4M3 => {
                for (o, &b) in out.iter_mut().zip(bytes) {
                    *o = F8_E4M3_VALUES[usize::from(b)];
                }
            }
            _ => panic!("{} is not a type that decode converts", self.name()),
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// In pieces through an aligned buffer, because stored tensors may start at any byte and the conversion of
/// whole slices uses the processor's instruction for it.
fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    const PIECE: usize = 256;
    let mut halves = [f16::ZERO; PIECE];
    for (o, b) in out.chunks_mut(PIECE).zip(bytes.chunks(2 * PIECE)) {
        for (h, b) in halves.iter_mut().zip(b.chunks_exact(2)) {
            *h = f16::from_le_bytes([b[0], b[1]]);
        }
        halves[..o.len()].convert_to_f32_slice(o);
    }
}

/// The 256 values of F8 E4M3 as used for weights ("fn" form: no infinities, 0x7f and 0xff are NaN).
pub static F8_E4M3_VALUES: [f32; 256] = f8_e4m3_values();

const fn f8_e4m3_values() -> [f32; 256] {
    let mut values = [0.0f32; 256];
    let mut code = 0;
    while code < 256 {
        let (exponent, mantissa) = ((code >> 3) & 15, code & 7);
        let magnitude = if exponent == 15 && mantissa == 7 {
            f32::NAN
        } else if exponent == 0 {
            // subnormal: mantissa · 2^-9
            mantissa as f32 / 512.0
        } else {
            // 2^(exponent - 7) · (1 + mantissa / 8), put together as bits of an f32
            f32::from_bits(((exponent + 120) << 23 | mantissa << 20) as u32)
        };
        values[code as usize] = if code & 128 != 0 { -magnitude } else { magnitude };
        code += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_come_back() {
        for d in Dtype::ALL {
            assert_eq!(Dtype::from_name(d.name()), Some(d));
        }
        assert_eq!(Dtype::from_name("F4"), None);
        assert_eq!(Dtype::from_name("bf16"), None);
    }

    #[test]
    fn f8_values_are_those_of_the_format() {
        // OCP 8-bit floating point specification, table of E4M3 extremes.
        assert_eq!(F8_E4M3_VALUES[0x7e], 448.0);
        assert_eq!(F8_E4M3_VALUES[0xfe], -448.0);
        assert_eq!(F8_E4M3_VALUES[0x08], 0.015625); // smallest normal, 2^-6
        assert_eq!(F8_E4M3_VALUES[0x01], 0.001953125); // smallest subnormal, 2^-9
        assert_eq!(F8_E4M3_VALUES[0x07], 0.013671875);
        assert_eq!(F8_E4M3_VALUES[0x38], 1.0);
        assert_eq!(F8_E4M3_VALUES[0xb9], -1.125);
        assert!(F8_E4M3_VALUES[0x80] == 0.0 && F8_E4M3_VALUES[0x80].is_sign_negative());
        let nans: Vec<usize> = (0..256).filter(|&i| F8_E4M3_VALUES[i].is_nan()).collect();
        assert_eq!(nans, [0x7f, 0xff]);
        for code in 1..0x7f {
            assert!(F8_E4M3_VALUES[code] > F8_E4M3_VALUES[code - 1], "code {code} is not ascending");
        }
    }

    #[test]
    fn halves_convert_at_any_offset() {
        let count = 600;
        let mut bytes = vec![0u8; 1 + 2 * count];
        for i in 0..count {
            let value = f16::from_bits((i * 97) as u16);
            bytes[1 + 2 * i..3 + 2 * i].copy_from_slice(&value.to_le_bytes());
        }
        let mut out = vec![0.0; count];
        Dtype::F16.decode(&bytes[1..], &mut out);
        for i in 0..count {
            let expected = f16::from_bits((i * 97) as u16).to_f32();
            assert!(out[i] == expected || out[i].is_nan() && expected.is_nan(), "element {i}");
        }
        Dtype::Bf16.decode(&[0x80, 0x3f, 0x40, 0xc0], &mut out[..2]);
        assert_eq!(out[..2], [1.0, -3.0]);
        Dtype::F32.decode(&1.5e-40f32.to_le_bytes(), &mut out[..1]);
        assert_eq!(out[0], 1.5e-40);
    }
}
