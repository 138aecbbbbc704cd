//! Scalar functions of the contract (docs/arithmetic.md §0). Written once; SIMD versions repeat the sequence.
