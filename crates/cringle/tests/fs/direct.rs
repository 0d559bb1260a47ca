//! Direct I/O: aligned memory, and errors that explain why the kernel refused a request.

use cringle::block::{AlignedBuf, Batch, BlockIo, FixedBufs, FixedFile};
use cringle::fs::{File, OpenOptions};
use cringle_testing::disk::{
    alone, directory, everywhere, in_company, outside, solitary, unwinding,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

#[test]
fn aligned_buffers_are_aligned_zeros_of_any_length() {
    for len in [0, 1, 511, 512, 4096, 4097, 1 << 20, (1 << 20) + 1] {
        let mut buf = AlignedBuf::new(len);
        assert_eq!(buf.len(), len);
        assert_eq!(buf.as_ptr().addr() % 4096, 0);
        assert!(buf.iter().all(|&byte| byte == 0));
        buf.fill(7);
        let mut moved = std::thread::spawn(move || buf).join().unwrap();
        assert!(moved.iter().all(|&byte| byte == 7));
        assert_eq!((moved.as_ref().len(), moved.as_mut().len()), (len, len));
        assert!(format!("{moved:?}").contains(&len.to_string()));
    }
}

#[test]
#[should_panic = "address space"]
fn buffer_larger_than_the_address_space_panics() {
    AlignedBuf::new(usize::MAX);
}

/// Returns the alignment that the file needs, of addresses, and of lengths and offsets.
fn alignment(file: &File) -> Option<(usize, usize)> {
    let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a C string, and a structure that is read only if the call has filled it.
    let out = unsafe {
        let (fd, path, out_ptr) = (file.as_raw_fd(), c"".as_ptr(), out.as_mut_ptr());
        assert_eq!(libc::statx(fd, path, libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, out_ptr), 0);
        out.assume_init()
    };
    let alignment = (out.stx_dio_mem_align as usize, out.stx_dio_offset_align as usize);
    (out.stx_mask & libc::STATX_DIOALIGN != 0 && alignment.1 > 1).then_some(alignment)
}

/// Checks that the error names exactly the misaligned parts.
fn assert_names(result: io::Result<usize>, address: bool, len: bool, offset: bool, what: &str) {
    let e = result.expect_err(what);
    assert_eq!(e.kind(), ErrorKind::InvalidInput, "{what}: {e}");
    // An `io::Error` with a message has no `errno`; its source has it.
    let source =
        std::error::Error::source(&e).and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.and_then(io::Error::raw_os_error), Some(libc::EINVAL), "{what}: {e}");
    let text = e.to_string();
    let named = ["buffer's address", "the length", "the offset"].map(|word| text.contains(word));
    assert_eq!(named, [address, len, offset], "{what}: {text}");
    assert!(text.contains("O_DIRECT") && text.contains("AlignedBuf"), "{what}: {text}");
}

#[test]
fn refused_request_names_the_misalignment() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 1 << 16]).unwrap();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let Ok(file) = options.open(&path) else {
        return eprintln!("skipped: this file system has no direct I/O");
    };
    let Some((memory, on_disk)) = alignment(&file) else {
        return eprintln!("skipped: this file system does not report its alignment");
    };
    let mut options = OpenOptions::new();
    let append = options.append(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let io = BlockIo::builder().build().unwrap();
    for case in 1..8 {
        let [address, len, offset] = [0, 1, 2].map(|bit| case & (1 << bit) != 0);
        if address && memory == 1 {
            continue;
        }
        everywhere(|| {
            let mut buf = AlignedBuf::new(1 << 14);
            let start = usize::from(address);
            let end = start + 8192 - usize::from(len);
            let at = on_disk as u64 + u64::from(offset);
            let check = |result, what| assert_names(result, address, len, offset, what);

            let buf = &mut buf[start..end];
            if !offset {
                // An append has no misaligned offset, because the file ends at a block boundary.
                let (mut append, slice) = (&append, IoSlice::new(buf));
                check(append.write(&slice), "append");
                check(append.write_vectored(&[slice]), "append vectored");
            }
            check(file.read_at(buf, at), "read_at");
            check(file.write_at(buf, at), "write_at");
            check(file.read_vectored_at(&mut [IoSliceMut::new(buf)], at), "read_vectored_at");
            check(file.write_vectored_at(&[IoSlice::new(buf)], at), "write_vectored_at");
            (&file).seek(SeekFrom::Start(at)).unwrap();
            check((&file).read(buf), "read");
            check((&file).write(buf), "write");
            check((&file).read_vectored(&mut [IoSliceMut::new(buf)]), "read_vectored");
            check((&file).write_vectored(&[IoSlice::new(buf)]), "write_vectored");
            assert_eq!((&file).stream_position().unwrap(), at);

            let copy = buf.to_vec();
            let mut others = AlignedBuf::new(1 << 14);
            let mut batch = Batch::new();
            let refused =
                [batch.read(&file, buf, at), batch.read_exact(&file, &mut others[start..end], at)];
            let results = batch.submit();
            refused.iter().for_each(|&id| check(results.get(id), "a batch's read"));
            let mut batch = Batch::new();
            let refused = [batch.write(&file, buf, at), batch.write_all(&file, buf, at)];
            let results = io.submit(batch).unwrap();
            refused.iter().for_each(|&id| check(results.get(id), "a batch's write"));
            assert!(*buf == *copy);
        });
    }
    // Aligned requests succeed.
    everywhere(|| {
        let mut buf = AlignedBuf::new(8192);
        assert_eq!(file.read_at(&mut buf, 4096).unwrap(), 8192);
        assert!(buf.iter().all(|&byte| byte == 7));
        assert_eq!(file.write_at(&buf, 0).unwrap(), 8192);
    });
}

#[test]
fn misaligned_buffer_among_several_is_named() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 1 << 16]).unwrap();
    let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path) else {
        return;
    };
    let Some((_, on_disk)) = alignment(&file) else { return };
    for way in [outside, solitary, in_company] {
        way(|| {
            let (mut left, mut right) = (AlignedBuf::new(8192), AlignedBuf::new(8192));
            let mut slices =
                [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right[..on_disk + 1])];
            let result = file.read_vectored_at(&mut slices, 0);
            assert_names(result, false, true, false, "the second");
        });
    }
}

#[test]
fn refused_registered_request_names_the_misalignment() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 1 << 16]).unwrap();
    solitary(|| {
        let mut options = OpenOptions::new();
        let Ok(file) = options.read(true).custom_flags(libc::O_DIRECT).open(&path) else { return };
        if alignment(&file).is_none() {
            return;
        }
        let file = FixedFile::register(&file).unwrap();
        let (mut whole, mut odd) =
            (FixedBufs::new(2, 4096).unwrap(), FixedBufs::new(1, 4097).unwrap());
        let mut batch = Batch::new();
        let [one, other] = &mut whole[..] else { unreachable!() };
        let offset = batch.read_fixed(&file, one, 1);
        let len = batch.read_fixed(&file, &mut odd[0], 0);
        let fine = batch.read_fixed(&file, other, 4096);
        let results = batch.submit();
        assert_names(results.get(offset), false, false, true, "offset");
        assert_names(results.get(len), false, true, false, "length");
        assert_eq!(results.get(fine).unwrap(), 4096);
    });
}

#[test]
fn registered_buffered_file_keeps_the_kernels_error() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    solitary(|| {
        let file = FixedFile::register(&File::open(&path).unwrap()).unwrap();
        let mut bufs = FixedBufs::new(1, 5).unwrap();
        let mut batch = Batch::new();
        // No end of a request may lie beyond the largest offset.
        let read = batch.read_fixed(&file, &mut bufs[0], i64::MAX as u64 - 1);
        let e = batch.submit().get(read).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EINVAL), "{e}");
    });
}

#[test]
fn other_refusals_keep_the_kernels_error() {
    let directory = directory();
    let path = directory.path().join("file");
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    for custom in [0, libc::O_DIRECT] {
        let Ok(file) = options.clone().custom_flags(custom).open(&path) else { return };
        for way in [outside, solitary, alone, in_company, unwinding] {
            way(|| {
                // Aligned, and beyond the kernel's range.
                let mut buf = AlignedBuf::new(4096);
                let e = file.read_at(&mut buf, 1 << 63).unwrap_err();
                assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
                let mut batch = Batch::new();
                batch.read(&file, &mut buf, 1 << 63);
                let e = batch.submit().into_iter().next().unwrap().unwrap_err();
                assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
            });
        }
    }
}
