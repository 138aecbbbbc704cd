//! Ctrl-C and SIGTERM. While something is being computed they ask it to stop; otherwise, and the second time,
//! they end the program.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

static CANCEL: AtomicBool = AtomicBool::new(false);
static WORKING: AtomicBool = AtomicBool::new(false);

/// While it lives, an interruption sets the flag instead of ending the program.
pub struct Working(());

/// Starts such a time, with the flag down.
pub fn working() -> Working {
    static HANDLER: std::sync::Once = std::sync::Once::new();
    HANDLER.call_once(|| {
        let set = ctrlc::set_handler(|| {
            if !WORKING.load(Ordering::SeqCst) || CANCEL.swap(true, Ordering::SeqCst) {
                exit(130);
            }
        });
        // Without a handler an interruption ends the program, which is safe: files appear by renaming only.
        if let Err(error) = set {
            tracing::warn!("no clean end on Ctrl-C: {error}");
        }
    });
    CANCEL.store(false, Ordering::SeqCst);
    WORKING.store(true, Ordering::SeqCst);
    Working(())
}

impl Working {
    /// The flag.
    pub fn flag(&self) -> &'static AtomicBool {
        &CANCEL
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.store(false, Ordering::SeqCst);
    }
}
