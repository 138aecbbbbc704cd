//! Where weights come from, as the engine sees it.

use arch::Role;
use base::{ExpertId, LayerId};

/// Packed weights by role and by layer of experts: host memory. Implemented by the weight cache; tests may
/// implement it too.
pub trait WeightSource: Send + Sync {
    /// Bytes of a dense entry, as the manifest describes it, aligned to 64 bytes.
    fn dense(&self, role: Role) -> &[u8];
    /// All expert blocks of a layer, contiguous, by expert id.
    fn experts(&self, layer: LayerId) -> &[u8];
    /// The memory that everything is in: what devices copy from.
    fn bytes(&self) -> &[u8];
    /// Where in it a layer's experts begin.
    fn experts_at(&self, layer: LayerId) -> usize;
    /// Closes the memory, so that any read of it ends the process, or opens it again. For tests.
    fn close(&self, closed: bool);
}

impl WeightSource for weights::Cache {
    fn dense(&self, role: Role) -> &[u8] {
        weights::Cache::dense(self, role)
    }

    fn experts(&self, layer: LayerId) -> &[u8] {
        weights::Cache::experts(self, layer)
    }

    fn bytes(&self) -> &[u8] {
        self.mapping().bytes()
    }

    fn experts_at(&self, layer: LayerId) -> usize {
        self.expert_range(layer, ExpertId(0)).start as usize
    }

    fn close(&self, closed: bool) {
        self.mapping().close(closed);
    }
}
