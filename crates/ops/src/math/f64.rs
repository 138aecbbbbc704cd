//! Double-precision functions for tables and build-time constants, from a pinned pure-Rust libm: the system's
//! differs between machines.

pub use libm::{cos, exp, exp2, expm1, log as ln, log1p, pow, sin, sqrt, tanh};
