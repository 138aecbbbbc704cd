//! Checks that descriptors of several ops share.

use base::Refusal;

/// Most elements of one dimension: they are exact as f32, and no product of three overflows.
pub(crate) const MAX_WIDTH: usize = 1 << 20;

/// Refuses `value` outside `low..=high`.
pub(crate) fn within(field: &str, value: usize, low: usize, high: usize) -> Result<(), Refusal> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Refusal::value(field, value, format!("{low} to {high}"), "the op is written for sizes in this range"))
}

/// Refuses what is not a finite number above 0.
pub(crate) fn positive(field: &str, value: f32) -> Result<(), Refusal> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Refusal::value(field, value, "finite and above 0", "look at the model's configuration"))
}
