//! State that the kernel keeps of a thread, and that a worker's fibers must not change for each
//! other: priority and cores, credentials, namespaces, filters of system calls, the list of robust
//! locks.
//!
//! In a program that is [served](super::super::serve), a fiber that changes such state becomes a
//! thread of the system, by libc's functions as by `syscall`. In other programs it changes that of
//! its worker.

use super::super::call::OnFiber;
use super::super::descriptors::{close, close_range};
use super::super::notes::Reason;
use super::super::{next, own_threads, serve};
use super::{prctl, pthread_exit};
use cringle_core::interposition::is_on_own_thread;
use cringle_sys as sys;
use libc::{cpu_set_t, gid_t, id_t, pid_t, sched_param, size_t, uid_t};
use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

// `libc` has no names for these.
const PR_SVE_SET_VL: c_int = 50;
const PR_SET_SPECULATION_CTRL: c_int = 53;
const PR_PAC_RESET_KEYS: c_int = 54;
const PR_SET_TAGGED_ADDR_CTRL: c_int = 55;
const PR_SET_IO_FLUSHER: c_int = 57;
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const PR_SME_SET_VL: c_int = 63;

/// Makes the caller a thread of the system, if it is a fiber and the option of `prctl` sets
/// something of its thread: see `PR_SET_…(2const)`.
pub(super) fn admit_option(on: Option<OnFiber>, option: c_int) {
    match option {
        libc::PR_CAPBSET_DROP
        | libc::PR_CAP_AMBIENT
        | libc::PR_SET_NO_NEW_PRIVS
        | libc::PR_SET_SECCOMP
        | libc::PR_SET_SECUREBITS => changes_rights(on),
        libc::PR_MCE_KILL
        | libc::PR_SCHED_CORE
        | libc::PR_SET_ENDIAN
        | libc::PR_SET_FPEMU
        | libc::PR_SET_FPEXC
        | libc::PR_SET_KEEPCAPS
        | libc::PR_SET_PDEATHSIG
        | PR_SET_SPECULATION_CTRL
        | libc::PR_SET_TIMERSLACK
        | libc::PR_SET_TSC
        | libc::PR_SET_UNALIGN
        | PR_PAC_RESET_KEYS
        | PR_SET_IO_FLUSHER
        | PR_SET_SYSCALL_USER_DISPATCH
        | PR_SET_TAGGED_ADDR_CTRL
        | PR_SME_SET_VL
        | PR_SVE_SET_VL => own_thread(on),
        _ => {}
    }
}

/// Whether a system call changes the rights of the calling thread: credentials, of which libc's
/// functions change those of all threads, filters, and namespaces.
fn changes_rights_by(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_capset
            | libc::SYS_keyctl
            | libc::SYS_landlock_restrict_self
            | libc::SYS_seccomp
            | libc::SYS_setfsgid
            | libc::SYS_setfsuid
            | libc::SYS_setgid
            | libc::SYS_setgroups
            | libc::SYS_setregid
            | libc::SYS_setresgid
            | libc::SYS_setresuid
            | libc::SYS_setreuid
            | libc::SYS_setuid
            | libc::SYS_setns
            | libc::SYS_unshare
    )
}

/// Whether a system call concerns the calling thread alone.
fn concerns_thread(number: c_long) -> bool {
    match number {
        // A copy of the process has a copy of the thread, and a new thread inherits its state.
        libc::SYS_clone
        | libc::SYS_clone3
        // What the kernel writes into the thread's memory.
        | libc::SYS_rseq
        | libc::SYS_set_tid_address
        // Signals.
        | libc::SYS_rt_sigpending
        | libc::SYS_rt_sigprocmask
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_sigaltstack
        // Memory, execution.
        | libc::SYS_personality
        | libc::SYS_set_mempolicy => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_arch_prctl
        | libc::SYS_fork
        | libc::SYS_ioperm
        | libc::SYS_iopl
        | libc::SYS_vfork => true,
        _ => false,
    }
}

/// Makes the caller of a system call a thread of the system, if it is a fiber and the call concerns
/// its thread. Returns the arguments of the call, or the result of one that was made otherwise.
///
/// # Safety
///
/// As of the system call.
pub(crate) unsafe fn admit(
    on: Option<OnFiber>,
    number: c_long,
    mut arguments: [usize; 6],
) -> Result<[usize; 6], c_long> {
    /// `IOPRIO_WHO_PROCESS`.
    const ONE_THREAD: c_int = 1;
    let [a, b, c, d, e, _] = arguments;
    let mut names_thread = |at: usize| arguments[at] = thread(on, arguments[at] as pid_t) as usize;
    match number {
        // Which argument names a thread by number, as the caller by 0.
        libc::SYS_sched_setaffinity
        | libc::SYS_sched_setattr
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setscheduler
        | libc::SYS_tkill => names_thread(0),
        libc::SYS_setpriority if a as c_uint == libc::PRIO_PROCESS as c_uint => names_thread(1),
        libc::SYS_ioprio_set if a as c_int == ONE_THREAD => names_thread(1),
        libc::SYS_perf_event_open | libc::SYS_rt_tgsigqueueinfo | libc::SYS_tgkill => {
            names_thread(1);
        }
        _ if changes_rights_by(number) => changes_rights(on),
        _ if concerns_thread(number) => own_thread(on),
        libc::SYS_ptrace => begins_trace(on, a as c_uint),
        libc::SYS_set_robust_list => sets_list_of_locks(on),
        libc::SYS_prctl => {
            let [b, c, d, e] = [b, c, d, e].map(|argument| argument as c_ulong);
            // SAFETY: by the contract.
            return Err(c_long::from(unsafe { prctl(on, a as c_int, b, c, d, e) }));
        }
        // Fibers may wait for the file, and the library's own descriptors stay.
        // SAFETY: by the contract.
        libc::SYS_close => return Err(unsafe { close(on, a as c_int) }.into()),
        // SAFETY: by the contract.
        libc::SYS_close_range => unsafe {
            return Err(close_range(on, a as c_uint, b as c_uint, c as c_int).into());
        },
        // The worker, or the thread of its own, has to end otherwise.
        libc::SYS_exit if on.is_some() || is_on_own_thread() => {
            // SAFETY: by the contract. The thread returns nothing to C code.
            unsafe { pthread_exit(on, std::ptr::null_mut()) };
        }
        _ => {}
    }
    Ok(arguments)
}

/// Makes the caller a thread of the system if it is a fiber and means itself, by 0 or by the number
/// of its worker. Returns the number that it has then.
fn thread(on: Option<OnFiber>, thread: pid_t) -> pid_t {
    if on.is_none() && !own_threads::is_guest() {
        return thread;
    }
    let means_itself = thread == 0 || thread == sys::thread_number();
    if !means_itself || !own_threads::take(on, Reason::ThreadState) || thread == 0 {
        return thread;
    }
    sys::thread_number()
}

fn own_thread(on: Option<OnFiber>) {
    own_threads::take(on, Reason::ThreadState);
}

/// A tracer, and what it traces, are threads of the system. The tracer of a child that asks for it
/// is the thread that has started it.
fn begins_trace(on: Option<OnFiber>, request: c_uint) {
    if let libc::PTRACE_TRACEME | libc::PTRACE_ATTACH | libc::PTRACE_SEIZE = request {
        own_thread(on);
    }
}

fn sets_list_of_locks(on: Option<OnFiber>) {
    if own_threads::take(on, Reason::ThreadState) {
        cringle_tls::note_other_list();
    }
}

fn changes_rights(on: Option<OnFiber>) {
    serve::note_rights();
    own_thread(on);
}

calls! {
    Option<OnFiber>:
    fn sched_setaffinity(of: pid_t, bytes: size_t, cores: *const cpu_set_t) -> c_int;
    |on| next::sched_setaffinity(thread(on, of), bytes, cores);

    fn sched_setscheduler(of: pid_t, policy: c_int, parameters: *const sched_param) -> c_int;
    |on| next::sched_setscheduler(thread(on, of), policy, parameters);

    fn sched_setparam(of: pid_t, parameters: *const sched_param) -> c_int;
    |on| next::sched_setparam(thread(on, of), parameters);

    fn setpriority(which: c_uint, who: id_t, priority: c_int) -> c_int;
    |on| {
        let is_thread = which == libc::PRIO_PROCESS as c_uint;
        let who = if is_thread { thread(on, who as pid_t) as id_t } else { who };
        next::setpriority(which, who, priority)
    };

    fn ptrace(
        request: c_uint, process: pid_t, address: *mut c_void, data: *mut c_void,
    ) -> c_long;
    |on| { begins_trace(on, request); next::ptrace(request, process, address, data) };

    fn nice(change: c_int) -> c_int;
    |on| { own_thread(on); next::nice(change) };

    fn setfsuid(user: uid_t) -> c_int;
    |on| { changes_rights(on); next::setfsuid(user) };

    fn setfsgid(group: gid_t) -> c_int;
    |on| { changes_rights(on); next::setfsgid(group) };

    fn capset(header: *mut c_void, sets: *const c_void) -> c_int;
    |on| { changes_rights(on); next::capset(header, sets) };

    fn unshare(flags: c_int) -> c_int;
    |on| { changes_rights(on); next::unshare(flags) };

    fn setns(fd: c_int, kind: c_int) -> c_int;
    |on| { changes_rights(on); next::setns(fd, kind) };

    fn tgkill(process: pid_t, of: pid_t, signal: c_int) -> c_int;
    |on| next::tgkill(process, thread(on, of), signal);
}
