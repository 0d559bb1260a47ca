//! The types and constants of the interface. `include/cringle.h` is generated from them.

use std::ffi::{c_int, c_void};

/// The version of the binary interface. It grows with each addition; a library works with each
/// program that was compiled with the header of an earlier version.
pub const CRINGLE_ABI_VERSION: u32 = 2;

/// An engine: the number that `cringle_open` stores. It is never 0, and it is not used again.
pub type cringle_io = u64;

/// A submission that is under way: the number that `cringle_submit_cb`, `cringle_submit_eventfd`
/// and `cringle_queue_submit` store. It is never 0. No other submission of the process gets it, of
/// any engine, before 2^40 have begun after it.
pub type cringle_submission = u64;

/// A queue of an engine: the number that `cringle_queue_open` stores. It is at least 0, and is used
/// again as late as the number of a registered file.
pub type cringle_queue = i32;

/// The function that `cringle_submit_cb` calls when a submission has ended.
///
/// `failed` is what `cringle_submit` would have returned. The function is called once, on a thread
/// of the library, on a stack of 1 MiB. Other submissions of that thread wait until it returns. It
/// may call each function of this library but those that wait (`cringle_submit`, `cringle_close`,
/// `cringle_queue_close`, `cringle_queue_poll` with a time), which return `-EDEADLK` there, for any
/// engine. No other callback runs on its thread meanwhile.
///
/// It must return: no `longjmp`, no exception, no `pthread_exit`. It must not call `fork`: a child
/// has no copy of that stack. `posix_spawn` works, but a child inherits the blocked signals of the
/// library's thread, so that SIGTERM would not end it, unless `POSIX_SPAWN_SETSIGMASK` is set.
/// `popen` and `system` have no such option: call them on a thread of the program.
pub type cringle_callback = Option<unsafe extern "C" fn(arg: *mut c_void, failed: c_int)>;

/// Use io_uring where the kernel allows it, otherwise threads. (`CRINGLE_DRIVER` in the environment
/// may name one of the two.)
pub const CRINGLE_DRIVER_AUTO: u32 = 0;
/// Use io_uring. `cringle_open` fails where the kernel refuses it.
pub const CRINGLE_DRIVER_URING: u32 = 1;
/// Use threads and plain calls, not io_uring. ("epoll" is how the driver waits for sockets, which
/// this interface has none of.)
pub const CRINGLE_DRIVER_EPOLL: u32 = 2;

/// Pin each worker to a CPU.
pub const CRINGLE_OPEN_PIN: u32 = 1;
/// Poll the device for the completions of direct reads and writes, on devices with polled queues.
pub const CRINGLE_OPEN_IOPOLL: u32 = 2;

/// The parameters of `cringle_open`. All zero are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cringle_params {
    /// `sizeof(struct cringle_params)`. 0 means the size of the first version: all fields up to
    /// `driver`.
    pub size: u32,
    /// `CRINGLE_OPEN_…`, or-ed.
    pub flags: u32,
    /// Threads with a ring each, at most 1024. 0 means 1. The limits apply to each of them.
    pub workers: u32,
    /// Operations that one system call submits, less than 32768. 0 means 64.
    pub batch_limit: u32,
    /// Operations that are in the kernel at once, at least `batch_limit` and less than 65536. 0
    /// means 192, or `batch_limit` if that is larger. More of them wait.
    pub in_flight_limit: u32,
    /// `CRINGLE_DRIVER_…`.
    pub driver: u32,
}

/// Read up to `len` bytes at `offset`, as `pread`. The result may be smaller than `len`.
///
/// A read or write of more than 4 MiB is performed in pieces of 4 MiB, one after the other, so that
/// other submissions run between them, and a cancel takes effect there. The result is that of one
/// call: if an error or a cancel ends it after a part, the number of bytes of that part.
pub const CRINGLE_READ: u32 = 1;
/// Write up to `len` bytes at `offset`, as `pwrite`. The result may be smaller than `len`. More
/// than 4 MiB are written in pieces, as for `CRINGLE_READ`: a reader may see a part. A write to a
/// file with `O_APPEND` is one call.
pub const CRINGLE_WRITE: u32 = 2;
/// Read until `len` bytes are read or the file ends: a smaller result means the end of the file. An
/// error or a cancel is the result also after a part.
pub const CRINGLE_READ_FULL: u32 = 3;
/// Write all `len` bytes. The result is `len` or an error; after an error a part may be written.
pub const CRINGLE_WRITE_FULL: u32 = 4;
/// `fsync`. It begins when all operations before it in the array have ended, and those after it
/// begin when it has ended. (Neighbouring syncs run at the same time, up to 64 of them.)
pub const CRINGLE_FSYNC: u32 = 5;
/// `fdatasync`, in the order of `CRINGLE_FSYNC`.
pub const CRINGLE_FDATASYNC: u32 = 6;

/// `fd` is the number of a registered file.
pub const CRINGLE_OP_REGISTERED_FILE: u32 = 1;
/// `buf` lies within the registered buffer with the number `buffer`, with all `len` bytes.
pub const CRINGLE_OP_REGISTERED_BUFFER: u32 = 2;

/// The most operations of one submission.
pub const CRINGLE_MAX_OPS: u32 = 1048576;

/// An operation. The operations of an array run at the same time, in no order, but for the syncs;
/// of an array with more than 16384 operations, as many at a time, and of those that are larger
/// than 4 MiB, four.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cringle_op {
    /// `CRINGLE_READ`, …
    pub kind: u32,
    /// A file descriptor, which stays open until the submission has ended, or the number of a
    /// registered file.
    pub fd: i32,
    /// The memory. Syncs ignore it.
    pub buf: *mut c_void,
    /// The number of bytes. Syncs ignore it.
    pub len: u64,
    /// The offset in the file, in bytes. Syncs ignore it.
    pub offset: u64,
    /// `CRINGLE_OP_…`, or-ed.
    pub flags: u32,
    /// The number of a registered buffer, with `CRINGLE_OP_REGISTERED_BUFFER`; otherwise 0.
    pub buffer: i32,
    /// Anything. `cringle_queue_poll` returns it; otherwise the library ignores it.
    pub user_data: u64,
    /// 0.
    pub reserved: [u64; 2],
}

/// The largest depth of a queue.
pub const CRINGLE_MAX_DEPTH: u32 = 65536;

/// The end of an operation of a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cringle_completion {
    /// That of the operation.
    pub user_data: u64,
    /// The number of bytes (0 for a sync), or `-errno`.
    pub result: i64,
}

/// The value of `*status` while a submission of `cringle_submit_eventfd` is under way.
pub const CRINGLE_PENDING: i32 = i32::MIN;

/// A range of memory for `cringle_register_buffers`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cringle_buffer {
    /// The first byte.
    pub base: *mut c_void,
    /// The number of bytes.
    pub len: u64,
}

/// The counters of an engine, since it was opened. They are read one after the other, while others
/// change.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cringle_stats {
    /// `sizeof(struct cringle_stats)`, which the caller sets.
    pub size: u64,
    /// Submissions that have ended. Each operation of a queue counts as one.
    pub submissions: u64,
    /// Operations that have ended.
    pub operations: u64,
    /// Operations of these that failed.
    pub failed: u64,
    /// Operations of these that a cancel ended.
    pub cancelled: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Submissions that are under way: those that wait in `cringle_submit`, and those that were
    /// accepted and whose operations have not ended. A callback that runs is not one of them.
    pub in_flight: u64,
    /// Calls of the workers into the kernel to submit, to wait, or both.
    pub enters: u64,
    /// Sleeps of the workers in the kernel.
    pub sleeps: u64,
}
