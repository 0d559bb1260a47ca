//! The features with the consequence of lacking each: first those that the driver uses, then those
//! that only programs on the bare ring use.

use super::Probe::{self, Bit, Ops, Run, Setup};
use super::{Feature, probes};
use cringle::runtime::Feature as DriverFeature;
use io_uring::{Parameters, opcode};

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

/// Newer than the `io-uring` crate.
const OP_NOP128: u8 = 63;

/// Returns every feature.
pub(super) fn all() -> Vec<Feature> {
    let driver = DriverFeature::ALL.into_iter().map(of_the_driver);
    driver.chain(RING.iter().map(Row::feature)).collect()
}

/// A feature of the driver, by the library's own tables.
fn of_the_driver(feature: DriverFeature) -> Feature {
    let probe = match feature {
        DriverFeature::SubmitAll => Setup(SUBMIT_ALL),
        DriverFeature::SingleIssuer => Setup(SINGLE_ISSUER),
        DriverFeature::DeferTaskrun => Setup(SINGLE_ISSUER | DEFER_TASKRUN),
        DriverFeature::TaskrunFlag => Setup(COOP_TASKRUN | TASKRUN_FLAG),
        DriverFeature::NoSqarray => Setup(NO_SQARRAY),
        DriverFeature::RegisteredRing => Run(probes::registered_ring),
        DriverFeature::NoIowait => Bit(Parameters::is_feature_no_iowait),
        feature => Ops(feature.opcodes()),
    };
    let (since, cost) = (feature.since(), feature.cost());
    Feature { name: format!("{feature:?}"), since, used: true, cost, probe }
}

/// A feature that only programs on the bare ring use: name, first release, test, consequence.
struct Row(&'static str, &'static str, Probe, &'static str);

impl Row {
    fn feature(&self) -> Feature {
        Feature { name: self.0.into(), since: self.1, used: false, cost: self.3, probe: self.2 }
    }
}

const RING: &[Row] = &[
    Row("MULTISHOT_ACCEPT", "5.19", Run(probes::multishot_accept), "an op for each accept"),
    Row("PBUF_RING", "5.19", Run(probes::buffer_ring), "a buffer waits with each receive"),
    Row("SPARSE_FILES", "5.19", Run(probes::sparse_files), "files are registered at once"),
    Row("OP_SOCKET", "5.19", Ops(&[opcode::Socket::CODE]), "sockets by a plain call"),
    Row("SYNC_CANCEL", "6.0", Run(probes::sync_cancel), "cancels cannot be waited for"),
    Row("MULTISHOT_RECV", "6.0", Run(probes::multishot_recv), "an op for each receive"),
    Row("SENDMSG_ZC", "6.1", Ops(&[opcode::SendMsgZc::CODE]), "large messages are copied"),
    Row("NO_MMAP", "6.5", Run(probes::no_mmap), "no rings in huge pages"),
    Row("READ_MULTISHOT", "6.7", Ops(&[opcode::ReadMulti::CODE]), "an op for each read of a pipe"),
    Row(
        "FUTEX",
        "6.7",
        Ops(&[opcode::FutexWait::CODE, opcode::FutexWake::CODE, opcode::FutexWaitV::CODE]),
        "no waiting for another thread's lock",
    ),
    Row("WAITID", "6.7", Ops(&[opcode::WaitId::CODE]), "a descriptor for each child waited for"),
    Row("SOCKET_OPTIONS", "6.7", Run(probes::socket_options), "options by a plain call"),
    Row(
        "FIXED_FD_INSTALL",
        "6.8",
        Ops(&[opcode::FixedFdInstall::CODE]),
        "a registered file stays one",
    ),
    Row("PBUF_STATUS", "6.8", Run(probes::buffer_status), "who uses buffers cannot be asked"),
    Row("NAPI", "6.9", Run(probes::napi), "no busy polling of network cards"),
    Row(
        "RECVSEND_BUNDLE",
        "6.10",
        Bit(Parameters::is_feature_recvsend_bundle),
        "one buffer for each op",
    ),
    Row(
        "BIND_LISTEN",
        "6.11",
        Ops(&[opcode::Bind::CODE, opcode::Listen::CODE]),
        "listeners by plain calls",
    ),
    Row("MIN_TIMEOUT", "6.12", Bit(Parameters::is_feature_min_timeout), "no wait for N or a while"),
    Row("PBUF_RING_INC", "6.12", Run(probes::incremental_buffers), "a buffer for each receive"),
    Row("ABS_TIMER", "6.12", Run(probes::absolute_timer), "waits are relative"),
    Row("REGISTER_CLOCK", "6.12", Run(probes::clock), "waits know one clock"),
    Row("CLONE_BUFFERS", "6.12", Run(probes::clone_buffers), "each ring pins its buffers anew"),
    Row("RESIZE_RINGS", "6.13", Run(probes::resize), "queues keep their size"),
    Row("MEM_REGION", "6.13", Run(probes::memory_region), "each wait's argument is copied"),
    Row("SEND_MSG_RING", "6.13", Run(probes::send_msg_ring), "only rings can send to rings"),
    Row("HYBRID_IOPOLL", "6.13", Setup(IOPOLL | HYBRID_IOPOLL), "polling takes a whole core"),
    Row("RECV_ZC", "6.15", Ops(&[opcode::RecvZc::CODE]), "what is received is copied"),
    Row("EPOLL_WAIT", "6.15", Ops(&[opcode::EpollWait::CODE]), "an epoll is polled, then asked"),
    Row(
        "READV_FIXED",
        "6.15",
        Ops(&[opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE]),
        "no vectors of registered buffers",
    ),
    Row("OP_PIPE", "6.16", Ops(&[opcode::Pipe::CODE]), "pipes by a plain call"),
    Row("CQE_MIXED", "6.18", Setup(CQE_MIXED), "all completions are large, or none"),
    Row("REGISTER_QUERY", "6.18", Run(probes::query), "features are probed one by one"),
    Row("SQE_MIXED", "6.19", Setup(SQE_MIXED), "all entries are large, or none"),
    Row("NOP128", "6.19", Ops(&[OP_NOP128]), "no large entries among small ones"),
];
