//! Where weights come from, as the engine sees it.

use arch::Role;
use base::LayerId;

/// Packed weights by role and by layer of experts. Implemented by the weight cache; tests may implement it
/// too.
pub trait WeightSource: Send + Sync {
    /// Bytes of a dense entry, as the manifest describes it, aligned to 64 bytes.
    fn dense(&self, role: Role) -> &[u8];
    /// All expert blocks of a layer, contiguous, by expert id.
    fn experts(&self, layer: LayerId) -> &[u8];
}

/// Experts aliased to the mapped cache file: no copy.
impl WeightSource for weights::Cache {
    fn dense(&self, role: Role) -> &[u8] {
        weights::Cache::dense(self, role)
    }

    fn experts(&self, layer: LayerId) -> &[u8] {
        weights::Cache::experts(self, layer)
    }
}
