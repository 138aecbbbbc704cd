//! Facts about this process and machine. One of the files that may use `unsafe`.

/// Bytes of a memory page.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant; it has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|b| b.is_power_of_two()).unwrap_or(4096)
}

/// Processors this process may run on.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A line of /proc/self/status in bytes (`RssAnon`, `VmHWM`, `RssFile`, …), if the system has it.
pub fn status_bytes(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.split(':').next() == Some(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Bytes of memory that programs can still take without swapping, if the system tells.
pub fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Free bytes of the file system that holds `path`.
pub fn free_disk_bytes(path: &std::path::Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let c_path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: statvfs is plain data for which all-zero bytes are a valid value.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a NUL-terminated string and `facts` a writable statvfs, both alive for the call.
    let rc = unsafe { libc::statvfs(c_path.as_ptr(), &mut facts) };
    #[allow(clippy::unnecessary_cast)] // the field widths differ between platforms
    (rc == 0).then(|| facts.f_bavail as u64 * facts.f_frsize as u64)
}

/// Name of the processor, if the system tells.
pub fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split(':').nth(1)?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_plausible() {
        assert!(page_bytes() >= 4096);
        assert!(threads() >= 1);
        assert!(free_disk_bytes(std::path::Path::new("/")).is_some());
        assert!(available_memory_bytes().is_some_and(|b| b > 1 << 20));
        assert!(status_bytes("VmRSS").is_some_and(|b| b > 0));
        assert_eq!(status_bytes("NoSuchField"), None);
    }
}
