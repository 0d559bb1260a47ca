//! The table of all that the driver asks of a ring: ops, flags of entries, and requests of
//! `io_uring_register`. Restricted rings are made from it, and the list of `cringle doctor
//! --container`.
//!
//! The driver builds entries by the types of [`opcode`] and the constants of [`flag`] alone, which
//! the rows define: an op without a row does not compile. (A test checks that no other file imports
//! those of the crate `io_uring`, and that each request that a ring gets has a row.)

use io_uring::squeue::Flags;

macro_rules! table {
    (ops { $($op:ident $op_name:literal,)* } flags { $($flag:ident $flag_name:literal,)* }) => {
        /// The ops of the table, as builders of entries.
        pub(crate) mod opcode {
            pub(crate) use io_uring::opcode::{$($op),*};
        }

        /// The flags of the table.
        pub(crate) mod flag {
            use io_uring::squeue::Flags;

            $(pub(crate) const $flag: Flags = Flags::$flag;)*
        }

        /// The numbers and names of the ops.
        pub const OPS: &[(u8, &str)] = &[$((opcode::$op::CODE, $op_name)),*];

        /// The bits and names of the entries' flags.
        pub const ENTRY_FLAGS: &[(u8, &str)] = &[$((flag::$flag.bits(), $flag_name)),*];
    };
}

table! {
    ops {
        Nop "NOP",
        Readv "READV",
        Writev "WRITEV",
        Fsync "FSYNC",
        ReadFixed "READ_FIXED",
        WriteFixed "WRITE_FIXED",
        PollAdd "POLL_ADD",
        SyncFileRange "SYNC_FILE_RANGE",
        SendMsg "SENDMSG",
        RecvMsg "RECVMSG",
        Accept "ACCEPT",
        AsyncCancel "ASYNC_CANCEL",
        Connect "CONNECT",
        Fallocate "FALLOCATE",
        OpenAt "OPENAT",
        Close "CLOSE",
        Statx "STATX",
        Read "READ",
        Write "WRITE",
        Fadvise "FADVISE",
        Send "SEND",
        Recv "RECV",
        OpenAt2 "OPENAT2",
        RenameAt "RENAMEAT",
        UnlinkAt "UNLINKAT",
        MkDirAt "MKDIRAT",
        SymlinkAt "SYMLINKAT",
        LinkAt "LINKAT",
        MsgRingData "MSG_RING",
        FSetXattr "FSETXATTR",
        SetXattr "SETXATTR",
        FGetXattr "FGETXATTR",
        GetXattr "GETXATTR",
        SendZc "SEND_ZC",
        FutexWait "FUTEX_WAIT",
        Ftruncate "FTRUNCATE",
    }
    flags {
        FIXED_FILE "IOSQE_FIXED_FILE",
        IO_HARDLINK "IOSQE_IO_HARDLINK",
        ASYNC "IOSQE_ASYNC",
        SKIP_SUCCESS "IOSQE_CQE_SKIP_SUCCESS",
    }
}

/// A request of `io_uring_register`.
pub struct Request {
    pub number: u8,
    pub name: &'static str,
    /// Whether it is made only before a ring can be used.
    pub at_setup: bool,
}

const fn at_setup(number: u8, name: &'static str) -> Request {
    Request { number, name, at_setup: true }
}

const fn in_use(number: u8, name: &'static str) -> Request {
    Request { number, name, at_setup: false }
}

/// The requests of `io_uring_register`.
pub const REQUESTS: &[Request] = &[
    in_use(6, "FILES_UPDATE"),
    at_setup(8, "PROBE"),
    at_setup(11, "RESTRICTIONS"),
    at_setup(12, "ENABLE_RINGS"),
    in_use(13, "FILES2"),
    in_use(15, "BUFFERS2"),
    in_use(16, "BUFFERS_UPDATE"),
    in_use(20, "RING_FDS"),
    in_use(21, "UNREGISTER_RING_FDS"),
];

/// All flags that an entry of the driver may have.
pub(crate) fn entry_flags() -> Flags {
    ENTRY_FLAGS.iter().fold(Flags::empty(), |all, (bits, _)| all | Flags::from_bits_retain(*bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// The functions that make requests, of the crate `io_uring` and the driver.
    const FUNCTIONS: [(&str, u8); 9] = [
        ("register_files_update", 6),
        ("register_probe", 8),
        ("register_restrictions", 11),
        ("register_enable_rings", 12),
        ("register_files_sparse", 13),
        ("register_buffers_sparse", 15),
        ("register_buffers_update", 16),
        ("register_ring_fd", 20),
        ("unregister_ring_fd", 21),
    ];

    /// The sources of this crate, but this file.
    fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if !path.ends_with("ring_use.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }

    fn all_sources() -> Vec<(PathBuf, String)> {
        let mut all = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
        assert!(all.len() > 30);
        all
    }

    #[test]
    fn entries_are_built_by_the_table_alone() {
        for (path, text) in all_sources() {
            for import in text.split("io_uring::").skip(1) {
                // A list in braces, or a path.
                let end: &[char] = if import.starts_with('{') { &['}'] } else { &[';', '\n'] };
                let import = import.split(end).next().unwrap();
                let bypasses = ["opcode", "Flags", "*"].iter().any(|name| import.contains(name));
                assert!(!bypasses, "{}: io_uring::{import} bypasses ring_use.rs", path.display());
            }
        }
    }

    #[test]
    fn every_request_of_a_ring_has_a_row() {
        let mut used = Vec::new();
        for (path, text) in all_sources() {
            let has = |name: &str| path.components().any(|part| part.as_os_str() == name);
            if !has("uring") || has("tests") || has("tests.rs") {
                continue;
            }
            let calls = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(');
            for call in calls.filter(|word| word.contains("register_") && word.contains('(')) {
                let function = call.split('(').next().unwrap();
                used.push(function.to_owned());
            }
        }
        // The driver's own, which call the others, and the constructor of a restriction.
        used.retain(|name| {
            !["register_file", "register_buffer", "register_op"]
                .iter()
                .any(|own| name.ends_with(own))
        });
        for function in &used {
            let row = FUNCTIONS.iter().find(|(name, _)| name == function);
            let (_, number) = row.unwrap_or_else(|| panic!("{function} has no row"));
            assert!(REQUESTS.iter().any(|request| request.number == *number), "{function}");
        }
        for Request { name, number, .. } in REQUESTS {
            let (function, _) = FUNCTIONS.iter().find(|(_, made)| made == number).unwrap();
            assert!(used.iter().any(|used| used == function), "{name} is not used");
        }
    }
}
