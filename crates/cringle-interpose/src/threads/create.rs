//! Starting a fiber as a thread, and its end.

use super::super::call::{Call, OnFiber};
use super::super::queue::{self, Until};
use super::super::{next, notes, own_threads, serve, waits};
use super::alive::{self, Alive};
use super::attributes::Attributes;
use super::exit::{CANCELED, Place};
use super::registry::{self, Progress, Thread};
use super::signals;
use cringle_core::cancelled::Cancelled;
use cringle_core::choices::Threads;
use cringle_core::family::FamilyChoice;
use cringle_core::fiber::body::run_body;
use cringle_core::identity::Meta;
use cringle_core::interposition::{
    Keeper, Reserved, SpawnPlace, of_outsider, place_of_caller, release_block, take_block,
};
use cringle_core::shared::{Body, Shared, Unstarted};
use cringle_core::stack::{check_stack_bytes, default_stack_bytes};
use cringle_core::worker::Current;
use cringle_tls::Block;
use libc::{pthread_attr_t, pthread_t};
use notes::{Reason, note};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::Location;
use std::sync::Arc;

/// The function that a thread of pthread's starts with.
pub type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// The function that a thread of C11's starts with.
pub type C11Start = extern "C-unwind" fn(*mut c_void) -> c_int;

const AGAIN: isize = -(libc::EAGAIN as isize);

#[derive(Clone, Copy)]
enum Routine {
    Posix(Start),
    C11(C11Start),
}

impl Routine {
    fn address(self) -> usize {
        match self {
            Routine::Posix(start) => start as usize,
            Routine::C11(start) => start as usize,
        }
    }
}

thread_local! {
    /// Whether the caller's next thread belongs to another copy of the library.
    static NEXT_IS_OF_THE_SYSTEM: Cell<bool> = const { Cell::new(false) };
}

/// Leaves the next thread of the caller one of the system.
pub fn next_thread_is_of_the_system() {
    NEXT_IS_OF_THE_SYSTEM.set(true);
}

/// Who starts a thread that is a fiber.
enum Creator {
    Fiber(OnFiber),
    /// A thread of the system, in this runtime.
    Thread(&'static Shared),
}

impl Creator {
    /// `None` if the thread is to be one of the system. `start` is its start routine.
    fn of(on: Option<OnFiber>, start: usize) -> Option<Creator> {
        if NEXT_IS_OF_THE_SYSTEM.replace(false) {
            return None;
        }
        match on {
            Some(on) => (on.current.worker.shared().threads() == Threads::Fibers)
                .then_some(Creator::Fiber(on)),
            None => serve::runtime_for(start).map(Creator::Thread),
        }
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn pthread_create(
    on: Option<OnFiber>,
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if let Some(creator) = Creator::of(on, start as usize) {
        // SAFETY: by the contract.
        if let Some(wanted) = unsafe { Attributes::read(attributes) } {
            // SAFETY: by the contract.
            return unsafe { create(&creator, thread, wanted, Routine::Posix(start), argument) };
        }
        note(Reason::Attributes, start as usize);
        if serve::is_serving() {
            // SAFETY: by the contract.
            return unsafe { alive::create_counted(thread, attributes, start, argument) };
        }
    }
    // SAFETY: by the contract.
    unsafe { next::pthread_create(thread, attributes, start, argument) }
}

/// # Safety
///
/// As libc's.
pub unsafe fn thrd_create(
    on: Option<OnFiber>,
    thread: *mut pthread_t,
    start: C11Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        let Some(creator) = Creator::of(on, start as usize) else {
            return next::thrd_create(thread, start, argument);
        };
        let Some(wanted) = Attributes::read(std::ptr::null()) else {
            note(Reason::Attributes, start as usize);
            return next::thrd_create(thread, start, argument);
        };
        waits::c11(create(&creator, thread, wanted, Routine::C11(start), argument))
    }
}

/// # Safety
///
/// As libc's.
unsafe fn create(
    creator: &Creator,
    thread: *mut pthread_t,
    wanted: Attributes,
    start: Routine,
    argument: *mut c_void,
) -> c_int {
    // A fiber's calls need more of it than a system call does.
    let stack_bytes = wanted.stack_bytes.max(default_stack_bytes());
    if check_stack_bytes(stack_bytes).is_err() {
        return libc::EAGAIN;
    }
    note(Reason::Fiber, start.address());
    let argument = argument.expose_provenance();
    let start = |place| Started { start, argument, place, stack_bytes };
    match creator {
        Creator::Fiber(on) => on.call_for_code(|call| {
            let worker = call.current.worker;
            let block = worker.families.take_block().map_err(|_| AGAIN)?;
            let start = start(place_of_caller(call.current.fiber));
            // SAFETY: by the contract.
            let (record, unstarted) = unsafe { start.make(thread, block, wanted.is_detached) };
            match worker.make_thread(worker.shared().next_place(), unstarted) {
                Ok(()) => Ok(wait_for_start(call, &record)),
                Err((unstarted, _)) => Err(give_up(&record, unstarted)),
            }
        }),
        Creator::Thread(shared) => {
            let Ok(block) = take_block() else { return libc::EAGAIN };
            // SAFETY: by the contract.
            let (record, unstarted) =
                unsafe { start(of_outsider()).make(thread, block, wanted.is_detached) };
            match shared.start_from_outside(shared.next_place(), unstarted) {
                Ok(()) => record.wait_for_start(),
                Err(unstarted) => -give_up(&record, unstarted) as c_int,
            }
        }
    }
}

/// What a new thread begins with.
struct Started {
    start: Routine,
    /// A pointer that the caller of `pthread_create` sends to the thread.
    argument: usize,
    place: &'static SpawnPlace,
    stack_bytes: usize,
}

impl Started {
    /// Makes the thread's record and its fiber. The thread may read the handle as soon as it runs.
    ///
    /// # Safety
    ///
    /// The handle can be written.
    unsafe fn make(
        self,
        thread: *mut pthread_t,
        block: Block,
        is_detached: bool,
    ) -> (Arc<Thread>, Unstarted) {
        let handle = block.handle() as pthread_t;
        let record = registry::add(handle, is_detached, signals::mask());
        // SAFETY: by the contract.
        unsafe { *thread = handle };
        let keeper: Arc<dyn Keeper> = Arc::clone(&record) as _;
        let stack_bytes = self.stack_bytes;
        let body = ThreadBody { thread: Arc::clone(&record), _alive: Alive::new(), started: self };
        let unstarted = Unstarted {
            is_placed: false,
            body: Box::new(body),
            stack_bytes,
            origin: 0,
            family: FamilyChoice::Reserved(Reserved::new(block, keeper)),
        };
        (record, unstarted)
    }
}

/// Forgets a thread that cannot start. Returns the error.
fn give_up(record: &Thread, unstarted: Unstarted) -> isize {
    record.forget();
    if let FamilyChoice::Reserved(locals) = unstarted.family {
        release_block(locals.cancel());
    }
    AGAIN
}

/// Waits until another worker has a stack for the thread. On this one it has been found already.
fn wait_for_start(call: Call, thread: &Thread) -> isize {
    loop {
        let is_new = || matches!(thread.lock().progress, Progress::New);
        if !is_new() {
            let has_failed = matches!(thread.lock().progress, Progress::Failed);
            return if has_failed { AGAIN } else { 0 };
        }
        queue::wait(call, thread.address(), u32::MAX, Until::NEVER, is_new, || true);
    }
}

struct ThreadBody {
    thread: Arc<Thread>,
    _alive: Alive,
    started: Started,
}

impl Body for ThreadBody {
    fn run(self: Box<Self>) {
        let ThreadBody { thread, _alive, started } = *self;
        let Started { start, argument, place, .. } = started;
        let current = Current::get().expect("a fiber's body runs on a worker");
        current.enter_root();
        registry::set_own(Some(&thread));
        let mut state = thread.lock();
        state.progress = Progress::Running;
        state.stack = current.fiber.stack_area();
        state.worker = cringle_sys::thread_number();
        state.address = Some(current.address());
        // SAFETY: I2. It is taken back at the end of this function, which owns the record.
        unsafe { current.fiber.set_thread_word(&raw const thread.cancellation) };
        thread.announce(state);
        let meta = Meta::of_thread(Location::caller(), place);
        let argument = std::ptr::with_exposed_provenance_mut(argument);
        let (forks, place) = (waits::forks(), Place::new());
        let mut call = || {
            let mut value = None;
            place.call(&mut || {
                current.fiber.set_in_program(true);
                value = Some(match start {
                    Routine::Posix(start) => start(argument).expose_provenance(),
                    Routine::C11(start) => start(argument) as usize,
                });
            });
            current.fiber.set_in_program(false);
            if waits::forks() != forks {
                end_child(current);
            }
            own_threads::end();
            // `pthread_exit` has noted its value itself.
            if let Some(value) = value {
                thread.lock().value = value;
            }
        };
        run_body(&meta, &mut call, &mut |ended| {
            if let Err(payload) = ended {
                place.forget();
                thread.lock().value = value_of(&*payload);
            }
        });
        // SAFETY: I2. None is always valid.
        unsafe { current.fiber.set_thread_word(std::ptr::null()) };
    }

    fn fail(self: Box<Self>, _: std::io::Error) {
        let mut state = self.thread.lock();
        state.progress = Progress::Failed;
        // The block goes back at once.
        state.is_detached = true;
        self.thread.announce(state);
    }
}

/// The value of a thread whose start routine was unwound by a panic.
fn value_of(payload: &(dyn std::any::Any + Send)) -> usize {
    if !payload.is::<Cancelled>() {
        cringle_sys::report(format_args!("a panic left the start routine of a thread; aborting"));
        std::process::abort();
    }
    CANCELED
}

/// Ends a child of `fork` whose first thread has ended, as libc does.
fn end_child(current: Current) -> ! {
    // SAFETY: I14. The caller is a member of the family, and runs on its block. No worker of this
    // process knows it.
    unsafe { current.fiber.family().run_destructors() };
    alive::end_with_last_thread()
}
