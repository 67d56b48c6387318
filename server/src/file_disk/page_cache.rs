//! What the page cache has of a file, without a read.
//!
//! A read that only takes what is there (`RWF_NOWAIT`) makes the operating system read ahead what
//! is not, page by page and into fresh memory: a third of the speed at which the disk gives the
//! same bytes to whoever asks for blocks. `cachestat` (Linux 6.5) only counts.

use std::fs::File;

use rustix::param::page_size;

/// Whether all of `len` bytes from `offset` are in the page cache; `None` where the operating
/// system does not tell.
pub(super) fn has_all(file: &File, offset: u64, len: u64) -> Option<bool> {
    let page = page_size() as u64;
    let end = offset.checked_add(len)?.checked_next_multiple_of(page)?;
    let first = offset / page * page;
    let cached = pages(file, first, end - first)?;
    Some(cached >= (end - first) / page)
}

#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    )
))]
#[expect(unsafe_code, reason = "no crate in use wraps this system call")]
fn pages(file: &File, offset: u64, len: u64) -> Option<u64> {
    use std::os::fd::AsRawFd as _;

    /// The number of the system call on these processors.
    const CACHESTAT: libc::c_long = 451;

    /// `struct cachestat_range`.
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }

    /// `struct cachestat`: pages in the cache, dirty, being written, thrown out, thrown out of
    /// late.
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        others: [u64; 4],
    }

    // A length of zero would mean the rest of the file.
    if len == 0 {
        return Some(0);
    }
    let range = Range { offset, len };
    let mut counts = Counts::default();
    // SAFETY: the call reads one `Range` and writes one `Counts`, both laid out as the system call
    // has them and alive until it returns, when nothing keeps a pointer to them. The descriptor
    // is that of `file`, which is borrowed. No other memory is touched.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut counts),
            0 as libc::c_uint,
        )
    };
    (result == 0).then_some(counts.cached)
}

#[cfg(not(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    )
)))]
fn pages(_: &File, _: u64, _: u64) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn bytes_that_were_just_written_are_there() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 3 * 4096 + 5]).expect("written");
        // Where it does not tell, nothing is wrong.
        if let Some(all) = has_all(&file, 0, 3 * 4096 + 5) {
            assert!(all);
            assert_eq!(has_all(&file, 4096, 100), Some(true));
            assert_eq!(has_all(&file, 0, 0), Some(true));
            assert_eq!(has_all(&file, 0, 64 << 20), Some(false), "beyond its end");
            assert_eq!(has_all(&file, u64::MAX - 1, 64), None, "beyond all numbers");
        }
    }
}
