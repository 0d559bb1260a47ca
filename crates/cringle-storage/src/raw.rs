//! Operations on memory of which Rust has no slice: the memory of other languages.

use super::batch::op_len;
use super::{Batch, OpId};
use cringle_driver::Op;
use cringle_std::fs::File;
use cringle_std::internal::InternalFile;

impl<'b> Batch<'b> {
    /// Adds a read from `offset` (in bytes) into `len` bytes of memory at `buf`, as
    /// [`read`](Batch::read), for memory of which Rust has no slice: memory of another language, or
    /// memory that other threads may access meanwhile.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// let file = File::open("/proc/self/exe")?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// // SAFETY: the contract of the call: `magic` is accessed only after `submit` has returned.
    /// let read = unsafe { batch.read_raw(&file, magic.as_mut_ptr(), magic.len(), 0) };
    /// assert_eq!(batch.submit().get(read)?, 4);
    /// assert_eq!(&magic, b"\x7fELF");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until `submit` has returned, or the batch is dropped, the memory stays allocated and no Rust
    /// reference to it is used. (The kernel returns `EFAULT` for memory that cannot be written,
    /// also for NULL.) Operations may overlap; the contents are then unspecified.
    ///
    /// If the file was opened with [`Direct::Bounce`](cringle_std::fs::Direct), this library may
    /// copy to the memory: it is NULL, which is `EFAULT`, or mapped and writable, and no other
    /// thread accesses it.
    #[inline]
    pub unsafe fn read_raw(
        &mut self,
        file: &'b File,
        buf: *mut u8,
        len: usize,
        offset: u64,
    ) -> OpId {
        let op = Op::read(file.target(), buf, op_len(len), offset);
        let id = self.push(op, offset);
        if !file.is_batchable_to_read() {
            self.admit(id, file);
        }
        id
    }

    /// Adds a write at `offset` (in bytes) of `len` bytes of memory at `buf`, as
    /// [`write`](Batch::write), for memory of which Rust has no slice.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::{self, File}};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let file = File::create(&path)?;
    /// let text = *b"rope";
    /// let mut batch = Batch::new();
    /// // SAFETY: the contract of the call: `text` outlives the batch.
    /// unsafe { batch.write_raw(&file, text.as_ptr(), text.len(), 0) };
    /// batch.submit();
    /// assert_eq!(fs::read(&path)?, text);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until `submit` has returned, or the batch is dropped, the memory stays allocated and no
    /// exclusive Rust reference to it is used. (The kernel returns `EFAULT` for memory that cannot
    /// be read, also for NULL.) If another thread changes the memory meanwhile, the file gets old
    /// or new bytes.
    ///
    /// If the file was opened with [`Direct::Bounce`](cringle_std::fs::Direct), this library may
    /// copy from the memory: it is NULL, which is `EFAULT`, or mapped and readable, and no other
    /// thread changes it.
    #[inline]
    pub unsafe fn write_raw(
        &mut self,
        file: &'b File,
        buf: *const u8,
        len: usize,
        offset: u64,
    ) -> OpId {
        let op = Op::write(file.target(), buf, op_len(len), offset);
        let id = self.push(op, offset);
        if !file.is_batchable_to_write() {
            self.admit(id, file);
        }
        id
    }
}
