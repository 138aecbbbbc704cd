//! When to load what.

/// Whether a chunk of `rows` rows should load the experts that it routes to, instead of streaming whole
/// layers: when it is expected to route to fewer than half of a layer's `experts`, were each row's `top_k`
/// drawn evenly, and when all it can route to fits the `slots` at once.
///
/// 1 − (1 − k/E)^rows < 1/2 ⇔ rows < ln 2 / −ln(1 − k/E); with −ln(1 − x) ≥ x, rows·k < 0.69·E is enough.
pub fn loads_on_demand(rows: usize, top_k: usize, experts: usize, slots: usize) -> bool {
    let routed = rows.saturating_mul(top_k);
    routed.min(experts) <= slots && routed.saturating_mul(100) < experts.saturating_mul(69)
}
