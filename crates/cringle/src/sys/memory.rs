//! Memory of this process, read by the kernel.

use super::syscall;

/// Fills `bytes` with what is at this address, as a debugger would. False if the memory is not
/// mapped, or the call is not allowed. The bytes may be of different moments, because other threads
/// may write meanwhile; as the kernel reads them, that is no data race.
pub(crate) fn read_own(address: usize, bytes: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    let (pid, local, remote) = (std::process::id(), &raw const local, &raw const remote);
    // SAFETY: by the contract of the call: it writes to `bytes`, which is borrowed exclusively, and
    // checks the other address.
    let read = unsafe { syscall!(SYS_process_vm_readv, pid, local, 1, remote, 1, 0) };
    usize::try_from(read) == Ok(bytes.len())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_a_bad_address_refused() {
        let (from, mut to) = (*b"somewhere", [0; 9]);
        assert!(read_own(from.as_ptr().addr(), &mut to));
        assert_eq!(to, from);
        assert!(!read_own(8, &mut to));
        assert!(!read_own(usize::MAX, &mut to));
    }
}
