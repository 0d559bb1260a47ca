//! The features with the consequence of lacking each: first those that the driver uses, then those
//! that only programs on the bare ring use.

use super::{Feature, Probe, probes};
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

struct Row(&'static str, &'static str, Probe, &'static str, bool);

impl Row {
    const fn taken(
        name: &'static str,
        since: &'static str,
        probe: Probe,
        cost: &'static str,
    ) -> Row {
        Row(name, since, probe, cost, true)
    }

    const fn other(
        name: &'static str,
        since: &'static str,
        probe: Probe,
        cost: &'static str,
    ) -> Row {
        Row(name, since, probe, cost, false)
    }

    fn feature(&self) -> Feature {
        Feature { name: self.0, since: self.1, probe: self.2, cost: self.3, used: self.4 }
    }
}

/// Named as `cringle::runtime::Feature` names them.
const DRIVER: &[Row] = &[
    Row::taken("SubmitAll", "5.18", Probe::Setup(SUBMIT_ALL), "a bad entry stops those after it"),
    Row::taken("SingleIssuer", "6.0", Probe::Setup(SINGLE_ISSUER), "locks that nobody needs"),
    Row::taken(
        "DeferTaskrun",
        "6.1",
        Probe::Setup(SINGLE_ISSUER | DEFER_TASKRUN),
        "completions interrupt fibers",
    ),
    Row::taken(
        "TaskrunFlag",
        "5.19",
        Probe::Setup(COOP_TASKRUN | TASKRUN_FLAG),
        "the kernel is entered to look",
    ),
    Row::taken("NoSqarray", "6.6", Probe::Setup(NO_SQARRAY), "one more memory access for each op"),
    Row::taken(
        "RegisteredRing",
        "5.18",
        Probe::Run(probes::registered_ring),
        "a descriptor look-up for each call",
    ),
    Row::taken("NoIowait", "6.15", Probe::Bit(FEAT_NO_IOWAIT), "idle workers count as load"),
    Row::taken(
        "MsgRing",
        "5.18",
        Probe::Ops(&[opcode::MsgRingData::CODE]),
        "workers wake each other by an eventfd",
    ),
    Row::taken(
        "Ftruncate",
        "6.9",
        Probe::Ops(&[opcode::Ftruncate::CODE]),
        "set_len goes to the pool of threads",
    ),
    Row::taken(
        "FileSystem",
        "5.19",
        Probe::Ops(FILE_SYSTEM),
        "names and attributes go to the pool",
    ),
    Row::taken("SendZc", "6.0", Probe::Ops(&[opcode::SendZc::CODE]), "large sends are copied"),
];

const RING: &[Row] = &[
    Row::other(
        "MULTISHOT_ACCEPT",
        "5.19",
        Probe::Run(probes::multishot_accept),
        "an op for each accept",
    ),
    Row::other(
        "PBUF_RING",
        "5.19",
        Probe::Run(probes::buffer_ring),
        "a buffer waits with each receive",
    ),
    Row::other(
        "SPARSE_FILES",
        "5.19",
        Probe::Run(probes::sparse_files),
        "files are registered at once",
    ),
    Row::other("OP_SOCKET", "5.19", Probe::Ops(&[opcode::Socket::CODE]), "sockets by a plain call"),
    Row::other(
        "SYNC_CANCEL",
        "6.0",
        Probe::Run(probes::sync_cancel),
        "cancels cannot be waited for",
    ),
    Row::other(
        "MULTISHOT_RECV",
        "6.0",
        Probe::Run(probes::multishot_recv),
        "an op for each receive",
    ),
    Row::other(
        "SENDMSG_ZC",
        "6.1",
        Probe::Ops(&[opcode::SendMsgZc::CODE]),
        "large messages are copied",
    ),
    Row::other("NO_MMAP", "6.5", Probe::Run(probes::no_mmap), "no rings in huge pages"),
    Row::other(
        "READ_MULTISHOT",
        "6.7",
        Probe::Ops(&[opcode::ReadMulti::CODE]),
        "an op for each read of a pipe",
    ),
    Row::other(
        "FUTEX",
        "6.7",
        Probe::Ops(&[opcode::FutexWait::CODE, opcode::FutexWake::CODE, opcode::FutexWaitV::CODE]),
        "no waiting for another thread's lock",
    ),
    Row::other(
        "WAITID",
        "6.7",
        Probe::Ops(&[opcode::WaitId::CODE]),
        "a descriptor for each child waited for",
    ),
    Row::other(
        "SOCKET_OPTIONS",
        "6.7",
        Probe::Run(probes::socket_options),
        "options by a plain call",
    ),
    Row::other(
        "FIXED_FD_INSTALL",
        "6.8",
        Probe::Ops(&[opcode::FixedFdInstall::CODE]),
        "a registered file stays one",
    ),
    Row::other(
        "PBUF_STATUS",
        "6.8",
        Probe::Run(probes::buffer_status),
        "who uses buffers cannot be asked",
    ),
    Row::other("NAPI", "6.9", Probe::Run(probes::napi), "no busy polling of network cards"),
    Row::other(
        "RECVSEND_BUNDLE",
        "6.10",
        Probe::Bit(FEAT_RECVSEND_BUNDLE),
        "one buffer for each op",
    ),
    Row::other(
        "BIND_LISTEN",
        "6.11",
        Probe::Ops(&[opcode::Bind::CODE, opcode::Listen::CODE]),
        "listeners by plain calls",
    ),
    Row::other("MIN_TIMEOUT", "6.12", Probe::Bit(FEAT_MIN_TIMEOUT), "no wait for N or a while"),
    Row::other(
        "PBUF_RING_INC",
        "6.12",
        Probe::Run(probes::incremental_buffers),
        "a buffer for each receive",
    ),
    Row::other("ABS_TIMER", "6.12", Probe::Run(probes::absolute_timer), "waits are relative"),
    Row::other("REGISTER_CLOCK", "6.12", Probe::Run(probes::clock), "waits know one clock"),
    Row::other(
        "CLONE_BUFFERS",
        "6.12",
        Probe::Run(probes::clone_buffers),
        "each ring pins its buffers anew",
    ),
    Row::other("RESIZE_RINGS", "6.13", Probe::Run(probes::resize), "queues keep their size"),
    Row::other(
        "MEM_REGION",
        "6.13",
        Probe::Run(probes::memory_region),
        "each wait's argument is copied",
    ),
    Row::other(
        "SEND_MSG_RING",
        "6.13",
        Probe::Run(probes::send_msg_ring),
        "only rings can send to rings",
    ),
    Row::other(
        "HYBRID_IOPOLL",
        "6.13",
        Probe::Setup(IOPOLL | HYBRID_IOPOLL),
        "polling takes a whole core",
    ),
    Row::other(
        "RECV_ZC",
        "6.15",
        Probe::Ops(&[opcode::RecvZc::CODE]),
        "what is received is copied",
    ),
    Row::other(
        "EPOLL_WAIT",
        "6.15",
        Probe::Ops(&[opcode::EpollWait::CODE]),
        "an epoll is polled, then asked",
    ),
    Row::other(
        "READV_FIXED",
        "6.15",
        Probe::Ops(&[opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE]),
        "no vectors of registered buffers",
    ),
    Row::other("OP_PIPE", "6.16", Probe::Ops(&[opcode::Pipe::CODE]), "pipes by a plain call"),
    Row::other("CQE_MIXED", "6.18", Probe::Setup(CQE_MIXED), "all completions are large, or none"),
    Row::other(
        "REGISTER_QUERY",
        "6.18",
        Probe::Run(probes::query),
        "features are probed one by one",
    ),
    Row::other("SQE_MIXED", "6.19", Probe::Setup(SQE_MIXED), "all entries are large, or none"),
    Row::other("NOP128", "6.19", Probe::Ops(&[OP_NOP128]), "no large entries among small ones"),
];
