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
//! fiber's stack, and the fiber leaves the worker in the middle of it. The thread that continues
//! the fiber returns from the handler; the interrupted system call begins again there.
//!
//! The handler does nothing if the library's own code was interrupted, or the loader's: the fiber
//! is in [the program](Fiber::is_in_program) otherwise, and no frame of it knows its worker. What
//! it is in the middle of, such as the allocator, continues at once, on the other thread.
//!
//! [Fiber::is_in_program]: cringle_core::fiber::Fiber::is_in_program

use super::notes::{self, Reason};
use super::own_threads;
use super::serve::{self, object_of};
use cringle_core::interposition::Host;
use cringle_core::shared::{Peer, Shared};
use cringle_core::worker::Current;
use cringle_sys::lock::{Mutex, OnceLock};
use cringle_sys::{self as sys, LibraryThread, syscall};
use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(10);
/// The time that a fiber has computed, at least, since it was seen first in the same run.
const COMPUTED: Duration = Duration::from_millis(6);
/// The pause between two looks while no fiber runs.
const IDLE_PAUSE: Duration = Duration::from_millis(40);
/// What the signal carries where the worker waits in no system call.
const COMPUTES: Call = (-1, 0);

/// The host for the next fiber that leaves in the handler, where no thread can be started.
static SPARE: Mutex<Option<Host>> = Mutex::new(None);
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
/// If it uses all of them.
pub(super) fn take_signal() -> io::Result<c_int> {
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
                return Ok(signal);
            }
        }
    }
    Err(io::Error::other("the program uses all real-time signals"))
}

/// What a look at a worker found. The time computed is that of the first look at this run of a
/// fiber, or of the last signal: beside other programs, a worker may have a processor for a small
/// part of the time between two looks.
#[derive(Default)]
struct Seen {
    turns: u64,
    running: usize,
    computed: Duration,
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
    let mut seen: Vec<Seen> = shared.peers.iter().map(|_| Seen::default()).collect();
    let mut pause = PAUSE;
    loop {
        std::thread::sleep(pause);
        notes::note_interrupted();
        let mut any_runs = false;
        for (seen, peer) in seen.iter_mut().zip(&shared.peers) {
            let found = seen.look(peer);
            any_runs |= !matches!(found, Found::Idle);
            if let Found::HeldUp(call) = found {
                prepare_host();
                send(signal, peer.counters.thread_number(), call);
            }
        }
        pause = if any_runs { PAUSE } else { (pause + PAUSE).min(IDLE_PAUSE) };
    }
}

/// An address in the loader.
fn loaders_function() -> usize {
    // SAFETY: I14. The name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tls_get_addr".as_ptr()) as usize }
}

impl Seen {
    fn look(&mut self, peer: &Peer) -> Found {
        let turns = peer.counters.turns.get();
        let running = peer.roster.running_number();
        let is_same = (turns, running) == (self.turns, self.running);
        let times = if running == 0 { None } else { peer.counters.processor_times() };
        let Some((computed, _)) = times else {
            self.running = 0;
            return Found::Idle;
        };
        if !is_same {
            *self = Seen { turns, running, computed };
            return Found::Runs;
        }
        if computed.saturating_sub(self.computed) >= COMPUTED {
            self.computed = computed;
            return Found::HeldUp(COMPUTES);
        }
        peer.counters.system_call().map_or(Found::Runs, Found::HeldUp)
    }
}

fn prepare_host() {
    if SPARE.lock().is_none()
        && let Ok(host) = Host::start()
    {
        *SPARE.lock() = Some(host);
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
    rest: [u64; 11],
}

const _: () = assert!(size_of::<Carried>() == size_of::<libc::siginfo_t>());

fn send(signal: c_int, thread: c_int, call: Call) {
    let process = std::process::id();
    let code = libc::SI_QUEUE;
    let info =
        Carried { signal, error: 0, code, padding: 0, process, user: 0, call, rest: [0; 11] };
    // SAFETY: I14. The structure is borrowed for the call. A thread that has ended gets no signal.
    unsafe { syscall!(SYS_rt_tgsigqueueinfo, process, thread, signal, &raw const info) };
}

/// Makes the interrupted fiber leave its worker.
unsafe extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
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
    if carried.call.0 == libc::SYS_io_uring_enter {
        // It gets `EINTR` from any handler.
        Registers::begin_again(context, carried.call);
    }
    let Some(current) = Current::get() else { return };
    let (stack, bytes) = current.fiber.stack_area();
    let is_on_fiber = (stack..stack + bytes).contains(&registers.stack);
    if !is_on_fiber || !current.fiber.is_in_program() || !current.may_have_thread() {
        return;
    }
    let Some(host) = SPARE.try_lock().and_then(|mut spare| spare.take()) else { return };
    Registers::begin_again(context, carried.call);
    let errno = sys::errno();
    own_threads::take_for_a_while(current, host);
    let reason = if carried.call == COMPUTES { Reason::Computing } else { Reason::SystemCall };
    notes::note_later(reason, registers.instruction);
    sys::set_errno(errno);
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
    stack: usize,
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    fn of(context: &libc::ucontext_t) -> Registers {
        let register = |at: c_int| context.uc_mcontext.gregs[at as usize] as usize;
        Registers { instruction: register(libc::REG_RIP), stack: register(libc::REG_RSP) }
    }

    /// Makes a call begin again that the kernel has ended by `EINTR`. A timeout begins anew. Not the
    /// calls of which the second would not do what the first did.
    fn begin_again(context: &mut libc::ucontext_t, (call, place): Call) {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let registers = &mut context.uc_mcontext.gregs;
        let [result, instruction] = [libc::REG_RAX, libc::REG_RIP].map(|at| at as usize);
        let before = registers[instruction] - SYSCALL.len() as i64;
        // SAFETY: I14. Code can be read, and the instruction is before the place that it returns
        // to.
        let is_call = || unsafe { (before as *const [u8; 2]).read() } == SYSCALL;
        let is_at_place = registers[instruction] == place as i64;
        let is_interrupted = is_at_place && registers[result] == -i64::from(libc::EINTR);
        let may_repeat = ![libc::SYS_close, libc::SYS_connect].contains(&call);
        if may_repeat && is_interrupted && is_call() {
            registers[result] = call;
            registers[instruction] = before;
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    fn of(context: &libc::ucontext_t) -> Registers {
        let registers = &context.uc_mcontext;
        Registers { instruction: registers.pc as usize, stack: registers.sp as usize }
    }

    /// As on x86-64. The number of the call is still in its register, and the first argument is
    /// lost: the call fails with `EINTR`, as it may.
    fn begin_again(_: &mut libc::ucontext_t, _: Call) {}
}
