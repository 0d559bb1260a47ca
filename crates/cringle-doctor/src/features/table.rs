//! The features, with what it costs to lack each: first those that the driver takes, then what
//! programs on the bare ring take.

use super::{Feature, How, tries};
use io_uring::opcode;

/// The ops that the driver needs.
pub(super) const NEEDED_OPS: [(u8, &str); 14] = [
    (opcode::Read::CODE, "READ"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::OpenAt::CODE, "OPENAT"),
    (opcode::Close::CODE, "CLOSE"),
    (opcode::Statx::CODE, "STATX"),
    (opcode::PollAdd::CODE, "POLL_ADD"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
    (opcode::Recv::CODE, "RECV"),
    (opcode::Send::CODE, "SEND"),
    (opcode::RecvMsg::CODE, "RECVMSG"),
    (opcode::SendMsg::CODE, "SENDMSG"),
    (opcode::Accept::CODE, "ACCEPT"),
    (opcode::Connect::CODE, "CONNECT"),
];

const SUBMIT_ALL: u32 = 1 << 7;
const COOP_TASKRUN: u32 = 1 << 8;
const TASKRUN_FLAG: u32 = 1 << 9;
const SINGLE_ISSUER: u32 = 1 << 12;
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_SQARRAY: u32 = 1 << 16;
const IOPOLL: u32 = 1 << 0;
const HYBRID_IOPOLL: u32 = 1 << 17;
const CQE_MIXED: u32 = 1 << 18;
const SQE_MIXED: u32 = 1 << 19;

const FEAT_RECVSEND_BUNDLE: u32 = 1 << 14;
const FEAT_MIN_TIMEOUT: u32 = 1 << 15;
const FEAT_NO_IOWAIT: u32 = 1 << 17;

/// Newer than the `io-uring` crate.
const OP_NOP128: u8 = 63;

const FILE_SYSTEM: &[u8] = &[
    opcode::OpenAt2::CODE,
    opcode::UnlinkAt::CODE,
    opcode::RenameAt::CODE,
    opcode::MkDirAt::CODE,
    opcode::SymlinkAt::CODE,
    opcode::LinkAt::CODE,
    opcode::Fallocate::CODE,
    opcode::Fadvise::CODE,
    opcode::SyncFileRange::CODE,
    opcode::GetXattr::CODE,
    opcode::FGetXattr::CODE,
    opcode::SetXattr::CODE,
    opcode::FSetXattr::CODE,
];

pub(super) fn all() -> Vec<Feature> {
    DRIVER.iter().chain(RING).map(|row| row.feature()).collect()
}

struct Row(&'static str, &'static str, How, &'static str, bool);

impl Row {
    const fn taken(name: &'static str, since: &'static str, how: How, cost: &'static str) -> Row {
        Row(name, since, how, cost, true)
    }

    const fn other(name: &'static str, since: &'static str, how: How, cost: &'static str) -> Row {
        Row(name, since, how, cost, false)
    }

    fn feature(&self) -> Feature {
        Feature { name: self.0, since: self.1, how: self.2, cost: self.3, used: self.4 }
    }
}

/// Named as `cringle::runtime::Feature` names them.
const DRIVER: &[Row] = &[
    Row::taken("SubmitAll", "5.18", How::Setup(SUBMIT_ALL), "a bad entry stops those after it"),
    Row::taken("SingleIssuer", "6.0", How::Setup(SINGLE_ISSUER), "locks that nobody needs"),
    Row::taken(
        "DeferTaskrun",
        "6.1",
        How::Setup(SINGLE_ISSUER | DEFER_TASKRUN),
        "completions interrupt fibers",
    ),
    Row::taken(
        "TaskrunFlag",
        "5.19",
        How::Setup(COOP_TASKRUN | TASKRUN_FLAG),
        "the kernel is entered to look",
    ),
    Row::taken("NoSqarray", "6.6", How::Setup(NO_SQARRAY), "one more memory access for each op"),
    Row::taken(
        "RegisteredRing",
        "5.18",
        How::Try(tries::registered_ring),
        "a descriptor look-up for each call",
    ),
    Row::taken("NoIowait", "6.15", How::Bit(FEAT_NO_IOWAIT), "idle workers count as load"),
    Row::taken(
        "MsgRing",
        "5.18",
        How::Ops(&[opcode::MsgRingData::CODE]),
        "workers wake each other by an eventfd",
    ),
    Row::taken(
        "Ftruncate",
        "6.9",
        How::Ops(&[opcode::Ftruncate::CODE]),
        "set_len goes to the pool of threads",
    ),
    Row::taken("FileSystem", "5.19", How::Ops(FILE_SYSTEM), "names and attributes go to the pool"),
    Row::taken("SendZc", "6.0", How::Ops(&[opcode::SendZc::CODE]), "large sends are copied"),
];

const RING: &[Row] = &[
    Row::other(
        "MULTISHOT_ACCEPT",
        "5.19",
        How::Try(tries::multishot_accept),
        "an op for each accept",
    ),
    Row::other(
        "PBUF_RING",
        "5.19",
        How::Try(tries::buffer_ring),
        "a buffer waits with each receive",
    ),
    Row::other(
        "SPARSE_FILES",
        "5.19",
        How::Try(tries::sparse_files),
        "files are registered at once",
    ),
    Row::other("OP_SOCKET", "5.19", How::Ops(&[opcode::Socket::CODE]), "sockets by a plain call"),
    Row::other("SYNC_CANCEL", "6.0", How::Try(tries::sync_cancel), "cancels cannot be waited for"),
    Row::other("MULTISHOT_RECV", "6.0", How::Try(tries::multishot_recv), "an op for each receive"),
    Row::other(
        "SENDMSG_ZC",
        "6.1",
        How::Ops(&[opcode::SendMsgZc::CODE]),
        "large messages are copied",
    ),
    Row::other("NO_MMAP", "6.5", How::Try(tries::no_mmap), "no rings in huge pages"),
    Row::other(
        "READ_MULTISHOT",
        "6.7",
        How::Ops(&[opcode::ReadMulti::CODE]),
        "an op for each read of a pipe",
    ),
    Row::other(
        "FUTEX",
        "6.7",
        How::Ops(&[opcode::FutexWait::CODE, opcode::FutexWake::CODE, opcode::FutexWaitV::CODE]),
        "no waiting for another thread's lock",
    ),
    Row::other(
        "WAITID",
        "6.7",
        How::Ops(&[opcode::WaitId::CODE]),
        "a descriptor for each child waited for",
    ),
    Row::other("SOCKET_OPTIONS", "6.7", How::Try(tries::socket_options), "options by a plain call"),
    Row::other(
        "FIXED_FD_INSTALL",
        "6.8",
        How::Ops(&[opcode::FixedFdInstall::CODE]),
        "a registered file stays one",
    ),
    Row::other(
        "PBUF_STATUS",
        "6.8",
        How::Try(tries::buffer_status),
        "who uses buffers cannot be asked",
    ),
    Row::other("NAPI", "6.9", How::Try(tries::napi), "no busy polling of network cards"),
    Row::other("RECVSEND_BUNDLE", "6.10", How::Bit(FEAT_RECVSEND_BUNDLE), "one buffer for each op"),
    Row::other(
        "BIND_LISTEN",
        "6.11",
        How::Ops(&[opcode::Bind::CODE, opcode::Listen::CODE]),
        "listeners by plain calls",
    ),
    Row::other("MIN_TIMEOUT", "6.12", How::Bit(FEAT_MIN_TIMEOUT), "no wait for N or a while"),
    Row::other(
        "PBUF_RING_INC",
        "6.12",
        How::Try(tries::incremental_buffers),
        "a buffer for each receive",
    ),
    Row::other("ABS_TIMER", "6.12", How::Try(tries::absolute_timer), "waits are relative"),
    Row::other("REGISTER_CLOCK", "6.12", How::Try(tries::clock), "waits know one clock"),
    Row::other(
        "CLONE_BUFFERS",
        "6.12",
        How::Try(tries::clone_buffers),
        "each ring pins its buffers anew",
    ),
    Row::other("RESIZE_RINGS", "6.13", How::Try(tries::resize), "queues keep their size"),
    Row::other(
        "MEM_REGION",
        "6.13",
        How::Try(tries::memory_region),
        "each wait's argument is copied",
    ),
    Row::other(
        "SEND_MSG_RING",
        "6.13",
        How::Try(tries::send_msg_ring),
        "only rings can send to rings",
    ),
    Row::other(
        "HYBRID_IOPOLL",
        "6.13",
        How::Setup(IOPOLL | HYBRID_IOPOLL),
        "polling takes a whole core",
    ),
    Row::other("RECV_ZC", "6.15", How::Ops(&[opcode::RecvZc::CODE]), "what is received is copied"),
    Row::other(
        "EPOLL_WAIT",
        "6.15",
        How::Ops(&[opcode::EpollWait::CODE]),
        "an epoll is polled, then asked",
    ),
    Row::other(
        "READV_FIXED",
        "6.15",
        How::Ops(&[opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE]),
        "no vectors of registered buffers",
    ),
    Row::other("OP_PIPE", "6.16", How::Ops(&[opcode::Pipe::CODE]), "pipes by a plain call"),
    Row::other("CQE_MIXED", "6.18", How::Setup(CQE_MIXED), "all completions are large, or none"),
    Row::other("REGISTER_QUERY", "6.18", How::Try(tries::query), "features are probed one by one"),
    Row::other("SQE_MIXED", "6.19", How::Setup(SQE_MIXED), "all entries are large, or none"),
    Row::other("NOP128", "6.19", How::Ops(&[OP_NOP128]), "no large entries among small ones"),
];
