//! Takes: a running model, witnesses of independent implementations, text.
//! Gives: comparisons, perplexities, divergences, speeds, and random models of real shapes to measure speed
//! on. Never: changes what it measures; prints.

pub mod bench;
pub mod compare;
pub mod numbers;
pub mod quality;
pub mod synth;
pub mod windows;
