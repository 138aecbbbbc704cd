//! One body of plain loops, compiled once per SIMD level: vector code of the same IEEE operations, so of the
//! same bits (nothing in Rust contracts or reorders float arithmetic). Ops whose inner loops need intrinsics
//! write their own functions instead.

/// Calls `$body($args…)`, compiled for `$level`. `$body` must be an `#[inline(always)]` function.
///
/// ```ignore
/// per_level!(exec.level, row(x: &[f32], y: &mut [f32]));
/// ```
macro_rules! per_level {
    ($level:expr, $body:ident($($arg:ident: $type:ty),* $(,)?) $(-> $gives:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2($($arg: $type),*) $(-> $gives)? {
            $body($($arg),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        fn avx512($($arg: $type),*) $(-> $gives)? {
            $body($($arg),*)
        }
        match $level {
            // SAFETY: a HostExec is only made with a level that this machine has (HostExec::new asserts it).
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx2 => unsafe { avx2($($arg),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx512 => unsafe { avx512($($arg),*) },
            _ => $body($($arg),*),
        }
    }};
}

pub(crate) use per_level;

/// Empties a buffer and gives it room for `count` elements.
pub(crate) fn make_room<T>(buffer: &mut Vec<T>, count: usize) {
    buffer.clear();
    buffer.reserve(count);
}
