//! Looks for workers of a served program that a fiber holds up, and makes that fiber a thread of
//! the system for a while.
//!
//! A fiber holds its worker up if it computes or spins, or waits in a call that is not interposed:
//! a system call by the instruction, as liburing's, or one within libc, as `fgets`. The worker's
//! other fibers stand meanwhile, and so do the completions in its ring, which no other thread can
//! take.
//!
//! The monitor looks every 10 ms. A worker that has been in the same run of a fiber since the last
//! look, and has had a processor or waits in a system call, gets a signal. The handler runs on the
//! stack that the fiber is on, its own or one that the program has made for a coroutine, and the
//! fiber leaves the worker in the middle of it. The thread that continues the fiber returns from
//! the handler; the interrupted system call begins again there. (A worker has no stack of its own
//! for handlers: a fiber that sets one becomes a thread of the system.)
//!
//! The handler does nothing if the library's own code was interrupted, or the loader's: the fiber
//! is in [the program](Fiber::is_in_program) otherwise, and no frame of it knows its worker. What
//! it is in the middle of, such as the allocator, continues at once, on the other thread.
//!
//! [Fiber::is_in_program]: cringle_core::fiber::Fiber::is_in_program

use super::notes::{self, Reason};
use super::own_threads;
use super::serve::{self, object_of};
use super::threads::cancel::{end_interrupted, interrupt_waiting};
use cringle_core::counters::system_call;
use cringle_core::interposition::{Host, is_on_own_thread};
use cringle_core::shared::{Peer, Shared};
use cringle_core::worker::Current;
use cringle_sys::lock::{Mutex, OnceLock};
use cringle_sys::{self as sys, LibraryThread, syscall};
use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);
/// The time that a fiber has computed, at least, since it was seen first in the same run.
const COMPUTED: Duration = Duration::from_millis(6);
/// The pause between two looks while no fiber runs.
const IDLE_PAUSE: Duration = Duration::from_millis(40);
/// What the signal carries where the worker waits in no system call.
const COMPUTES: Call = (-1, 0);

/// The monitor's signal, once it has one.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The most workers that one look finds a host for.
const MAX_HOSTS: usize = 64;

/// The hosts for the fibers that leave in the handler, where no thread can be started: one for each
/// worker, by its place.
static HOSTS: [Mutex<Option<Host>>; MAX_HOSTS] = [const { Mutex::new(None) }; MAX_HOSTS];
/// Where the loader and the kernel's own functions lie.
static OF_THE_SYSTEM: OnceLock<[Option<Range<usize>>; 2]> = OnceLock::new();

/// Starts the monitor of a runtime, with the signal that it has taken.
///
/// # Errors
///
/// If the system refuses the thread.
pub(super) fn start(shared: Arc<Shared>, signal: c_int) -> io::Result<()> {
    let watch = move || {
        let _thread = LibraryThread::begin();
        watch(&shared, signal);
    };
    std::thread::Builder::new().name("cringle-monitor".into()).spawn(watch).map(drop)
}

/// Installs the handler for a signal that the program does not use.
///
/// # Errors
///
/// If it uses all of them, or if the monitor could not see which workers are held up.
pub(super) fn take_signal() -> io::Result<c_int> {
    let path = "/proc/thread-self/schedstat";
    sys::plainly(|| std::fs::read(path)).map_err(|e| {
        io::Error::other(format!("{path}: {e}; it shows who holds others up: mount /proc"))
    })?;
    let signals = (libc::SIGRTMIN() + 1..libc::SIGRTMAX()).rev();
    for signal in signals {
        // SAFETY: I14. All zeros are a value of the structure, and the calls get such.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut action) != 0
                || (action.sa_sigaction != libc::SIG_DFL
                    && action.sa_sigaction != on_signal as *const () as usize)
            {
                continue;
            }
            action.sa_sigaction = on_signal as *const () as usize;
            // No mask: the worker leaves the handler by a switch of stacks, which restores none.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
            if libc::sigaction(signal, &action, std::ptr::null_mut()) == 0 {
                SIGNAL.store(signal, Ordering::Relaxed);
                return Ok(signal);
            }
        }
    }
    Err(io::Error::other("the program uses all real-time signals"))
}

/// The monitor's signal as a set of the kernel's.
pub(super) fn signal_set() -> u64 {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => 0,
        signal => 1 << (signal - 1),
    }
}

/// What a look at a worker found. The time computed is that of the first look at this run of a
/// fiber, or of the last signal: beside other programs, a worker may have a processor for a small
/// part of the time between two looks.
#[derive(Default)]
struct Seen {
    turns: u64,
    running: usize,
    computed: Duration,
    /// The time computed and that spent in a queue for a processor, and when that was.
    used: Duration,
    at: Option<Instant>,
}

/// A system call, by its number, and where it will return to.
type Call = (c_long, usize);

/// What a look at a worker has found.
enum Found {
    Idle,
    Runs,
    /// A fiber has held the worker up since the last look, now in this system call, or in
    /// [`COMPUTES`].
    HeldUp(Call),
}

fn watch(shared: &Shared, signal: c_int) {
    // SAFETY: the call has no contract.
    let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let _ = OF_THE_SYSTEM.set([object_of(loaders_function()), object_of(kernels)]);
    // A forked child has not the threads of its parent's hosts.
    HOSTS.iter().for_each(|host| std::mem::forget(host.try_lock().and_then(|mut it| it.take())));
    let mut seen: Vec<Seen> = shared.peers.iter().map(|_| Seen::default()).collect();
    let mut pause = PAUSE;
    loop {
        std::thread::sleep(pause);
        notes::note_interrupted();
        let mut any_runs = false;
        for (place, (seen, peer)) in seen.iter_mut().zip(&shared.peers).enumerate() {
            let found = seen.look(peer);
            any_runs |= !matches!(found, Found::Idle);
            if let Found::HeldUp(call) = found {
                let host = place % MAX_HOSTS;
                prepare_host(&HOSTS[host]);
                send(signal, peer.counters.thread_number(), call, host);
            }
        }
        interrupt_waiting(|thread| send(signal, thread, call_of(thread), MAX_HOSTS));
        pause = if any_runs { PAUSE } else { (pause + PAUSE).min(IDLE_PAUSE) };
    }
}

/// An address in the loader.
pub(super) fn loaders_function() -> usize {
    // SAFETY: I14. The name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tls_get_addr".as_ptr()) as usize }
}

impl Seen {
    fn look(&mut self, peer: &Peer) -> Found {
        let turns = peer.counters.turns.get();
        let running = peer.roster.running_number();
        let is_same = (turns, running) == (self.turns, self.running);
        let times = if running == 0 { None } else { peer.counters.processor_times() };
        let Some((computed, waited)) = times else {
            self.running = 0;
            return Found::Idle;
        };
        let (used, now) = (computed + waited, sys::now());
        if !is_same {
            *self = Seen { turns, running, computed, used, at: Some(now) };
            return Found::Runs;
        }
        if computed.saturating_sub(self.computed) >= COMPUTED {
            self.computed = computed;
            return Found::HeldUp(COMPUTES);
        }
        match system_call(peer.counters.thread_number()) {
            Ok(call) => call.map_or(Found::Runs, Found::HeldUp),
            Err(_) => {
                let passed = self.at.map_or(Duration::ZERO, |at| now - at);
                let slept = passed.saturating_sub(used.saturating_sub(self.used));
                if slept >= COMPUTED { Found::HeldUp(COMPUTES) } else { Found::Runs }
            }
        }
    }
}

/// The system call that a thread waits in, if any.
fn call_of(thread: c_int) -> Call {
    system_call(thread).ok().flatten().unwrap_or(COMPUTES)
}

fn prepare_host(place: &Mutex<Option<Host>>) {
    if place.lock().is_none()
        && let Ok(host) = Host::start()
    {
        *place.lock() = Some(host);
    }
}

/// `siginfo_t` of the monitor's signal.
#[repr(C)]
struct Carried {
    signal: c_int,
    error: c_int,
    code: c_int,
    padding: c_int,
    process: u32,
    user: u32,
    call: Call,
    /// The place among the [`HOSTS`].
    host: usize,
    rest: [u64; 10],
}

const _: () = assert!(size_of::<Carried>() == size_of::<libc::siginfo_t>());

fn send(signal: c_int, thread: c_int, call: Call, host: usize) {
    let process = std::process::id();
    let code = libc::SI_QUEUE;
    let rest = [0; 10];
    let info = Carried { signal, error: 0, code, padding: 0, process, user: 0, call, host, rest };
    // SAFETY: I14. The structure is borrowed for the call. A thread that has ended gets no signal.
    unsafe { syscall!(SYS_rt_tgsigqueueinfo, process, thread, signal, &raw const info) };
}

/// Makes the interrupted fiber leave its worker, or ends it, if it is cancelled on a thread of its
/// own.
unsafe extern "C-unwind" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the contract of a handler: the kernel passes both.
    let (carried, context) =
        unsafe { (&*info.cast::<Carried>(), &mut *context.cast::<libc::ucontext_t>()) };
    if carried.code != libc::SI_QUEUE || carried.process != std::process::id() {
        return;
    }
    let registers = Registers::of(context);
    if !may_be_in_program(registers.instruction) {
        return;
    }
    if is_on_own_thread() {
        end_interrupted(registers.system_call());
        return receive(context, &registers, carried.call);
    }
    // It gets `EINTR` from any handler.
    if carried.call.0 == libc::SYS_io_uring_enter {
        registers.begin_again(context, carried.call);
    }
    let Some(current) = Current::get() else { return };
    if !current.fiber.is_in_program() || !current.may_have_thread() {
        return;
    }
    let hosts = HOSTS.get(carried.host);
    let Some(host) = hosts.and_then(|host| host.try_lock()?.take()) else { return };
    registers.begin_again(context, carried.call);
    let errno = sys::errno();
    own_threads::take_for_a_while(current, host);
    receive(context, &registers, carried.call);
    let reason = if carried.call == COMPUTES { Reason::Computing } else { Reason::SystemCall };
    notes::note_later(reason, registers.instruction);
    sys::set_errno(errno);
}

/// Lets the interrupted fiber, which is on a thread of its own, receive the signals that it was
/// sent, when the handler returns.
fn receive(context: &mut libc::ucontext_t, registers: &Registers, call: Call) {
    let Some((mask, begins_again)) = own_threads::receive_interrupted() else { return };
    // SAFETY: I14. The kernel's set is the first word of libc's.
    unsafe { (&raw mut context.uc_sigmask).cast::<u64>().write(mask) };
    if registers.is_after(call) || (registers.is_before(call) && !begins_again) {
        fail(context, call);
    }
}

/// Whether the code at this address may be the program's: it is neither the library's, whose frames
/// know the worker, nor is it called by the library alone.
fn may_be_in_program(instruction: usize) -> bool {
    let is_in = |range: &Range<usize>| range.contains(&instruction);
    !serve::own_code().is_none_or(is_in)
        && OF_THE_SYSTEM.get().is_some_and(|all| !all.iter().flatten().any(is_in))
}

/// The registers that the handler looks at.
struct Registers {
    instruction: usize,
    /// The result of a system call that has just returned.
    result: isize,
    /// The number and the second argument of a system call.
    number: usize,
    second: usize,
}

impl Registers {
    /// Whether the code at this address makes a system call.
    fn is_call(address: usize) -> bool {
        // SAFETY: I14. Code can be read, and this is about where it runs.
        unsafe { (address as *const [u8; CALL.len()]).read() == CALL }
    }

    /// Whether a signal has interrupted a system call, which has done nothing.
    fn is_interrupted(&self) -> bool {
        let is_after = || Registers::is_call(self.instruction - CALL.len());
        self.result == -(libc::EINTR as isize) && is_after()
    }

    /// Whether the signal has interrupted this system call, which is about to begin again.
    fn is_before(&self, (call, place): Call) -> bool {
        let is_at = self.instruction + CALL.len() == place && Registers::is_call(self.instruction);
        is_at && self.number == call as usize
    }

    /// Whether the signal has interrupted this system call, which fails.
    fn is_after(&self, (_, place): Call) -> bool {
        self.instruction == place && self.is_interrupted()
    }

    /// The second argument of the system call that the code is about to make, or that was
    /// interrupted.
    fn system_call(&self) -> Option<usize> {
        let is_in_call = Registers::is_call(self.instruction) || self.is_interrupted();
        is_in_call.then_some(self.second)
    }
}

#[cfg(target_arch = "x86_64")]
static CALL: [u8; 2] = [0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
static CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

#[cfg(target_arch = "x86_64")]
impl Registers {
    fn of(context: &libc::ucontext_t) -> Registers {
        let register = |at: c_int| context.uc_mcontext.gregs[at as usize] as usize;
        Registers {
            instruction: register(libc::REG_RIP),
            result: register(libc::REG_RAX).cast_signed(),
            number: register(libc::REG_RAX),
            second: register(libc::REG_RSI),
        }
    }

    /// Makes a system call begin again that the kernel ends by `EINTR` at each signal, such as a
    /// wait for completions of the program's own ring, or `semop`. A call with a timeout has all of
    /// its time again. A `connect` with one continues, and fails with `EALREADY` at its end.
    /// `close` has closed its number, which may be another file's by now.
    fn begin_again(&self, context: &mut libc::ucontext_t, call: Call) {
        if self.is_after(call) && call.0 != libc::SYS_close {
            let registers = &mut context.uc_mcontext.gregs;
            registers[libc::REG_RAX as usize] = call.0;
            registers[libc::REG_RIP as usize] = (self.instruction - CALL.len()) as i64;
        }
    }
}

/// Makes the system call fail with `EINTR`.
#[cfg(target_arch = "x86_64")]
fn fail(context: &mut libc::ucontext_t, (_, place): Call) {
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RAX as usize] = -i64::from(libc::EINTR);
    registers[libc::REG_RIP as usize] = place as i64;
}

/// Makes the system call fail with `EINTR`.
#[cfg(target_arch = "aarch64")]
fn fail(context: &mut libc::ucontext_t, (_, place): Call) {
    context.uc_mcontext.regs[0] = -i64::from(libc::EINTR) as u64;
    context.uc_mcontext.pc = place as u64;
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    fn of(context: &libc::ucontext_t) -> Registers {
        let registers = &context.uc_mcontext;
        Registers {
            instruction: registers.pc as usize,
            result: registers.regs[0].cast_signed() as isize,
            number: registers.regs[8] as usize,
            second: registers.regs[1] as usize,
        }
    }

    /// As on x86-64. The number of the call is still in its register, and the first argument is
    /// lost: the call fails with `EINTR`, as it may.
    fn begin_again(&self, _: &mut libc::ucontext_t, _: Call) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn interrupted_call_begins_again_unless_it_closes() {
        let after = CALL.as_ptr_range().end as usize;
        for (number, begins_again) in [(libc::SYS_semop, true), (libc::SYS_close, false)] {
            // SAFETY: I14. All zeros are a value of the structure.
            let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
            let registers = &mut context.uc_mcontext.gregs;
            registers[libc::REG_RIP as usize] = after as i64;
            registers[libc::REG_RAX as usize] = -i64::from(libc::EINTR);
            Registers::of(&context).begin_again(&mut context, (number, after));
            assert_eq!(Registers::of(&context).is_before((number, after)), begins_again);
        }
    }
}
