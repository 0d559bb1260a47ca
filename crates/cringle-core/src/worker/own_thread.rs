//! A fiber on a thread of its own.
//!
//! What only a thread of the system can do, such as a system call that blocks, a fiber does on one:
//! it leaves its worker, and a [`Host`] continues it, on the same stack and the same thread-locals.
//! There it is no fiber: all calls are the plain ones. It comes back to its worker when it asks to,
//! and at the latest before it ends.
//!
//! To the worker the fiber waits meanwhile (`Wait::Thread`), and neither a wake-up nor a cancel nor
//! a probe resumes it. The worker gives it to the host after the switch to the scheduler, when its
//! registers are saved; the host gives it back in the same way, by a message (**I3**).
//!
//! The kernel does some of the work at the end of a thread: it releases the robust locks that the
//! thread holds, and clears a word. A fiber that wants that [goes back](end_thread_first) only when
//! its thread has ended, so that whoever joins it finds that done, and the kernel finds the fiber's
//! memory.

use super::{Current, Worker};
use crate::fiber::{FiberRef, RunState, Wait};
use crate::lent_frame::LentFrame;
use crate::shared::{Mail, MailBox};
use crate::worker::Question;
use cringle_driver::trace::Cause;
use cringle_sys::lock::{Condvar, Mutex};
use cringle_tls::{self as thread_locals, Switch};
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

thread_local! {
    /// The fiber goes back when the thread of its own has ended.
    static ENDS_FIRST: Cell<bool> = const { Cell::new(false) };
    /// The fiber that runs on this block, if it is on a thread of its own.
    static LENT: Cell<Option<Lent>> = const { Cell::new(None) };
}

/// A fiber, and the worker that has lent it.
#[derive(Clone, Copy)]
struct Lent {
    fiber: FiberRef,
    worker: NonNull<Worker>,
}

/// [`Lent`], between its worker and its host.
struct Sent(Lent, Arc<MailBox>);

// SAFETY: I3. The fiber is suspended, and its worker does not touch it until it is back.
unsafe impl Send for Sent {}

impl Sent {
    fn block(&self) -> usize {
        self.0.fiber.family().thread_pointer()
    }
}

/// A thread of the system that waits for a fiber.
pub struct Host(Arc<Place>);

#[derive(Default)]
struct Place {
    fiber: Mutex<Option<Sent>>,
    given: Condvar,
    is_given_up: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

const STACK_BYTES: usize = 64 << 10;

impl Host {
    /// Starts a thread. It ends when the fiber has gone back, or when this is dropped.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    pub fn start() -> io::Result<Host> {
        let host = Host(Arc::default());
        let place = Arc::clone(&host.0);
        let thread = Builder::new().name("cringle-own".into()).stack_size(STACK_BYTES);
        let started = cringle_sys::plainly(|| {
            thread.spawn(move || {
                if let Some(sent) = place.wait() {
                    let (own, block) = (thread_locals::current(), sent.block());
                    // SAFETY: I14. The fiber is suspended.
                    unsafe { thread_locals::on_block(block, || thread_locals::note_thread(own)) };
                    run(&sent);
                    // SAFETY: I14. The fiber is suspended again.
                    let ends_first =
                        unsafe { thread_locals::on_block(block, || ENDS_FIRST.take()) };
                    let thread = place.thread.lock().take();
                    match thread.filter(|_| ends_first) {
                        Some(thread) => give_back_after(thread, sent),
                        None => give_back(sent),
                    }
                }
            })
        })?;
        *host.0.thread.lock() = Some(started);
        Ok(host)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.0.is_given_up.store(true, Ordering::Release);
        let _fiber = self.0.fiber.lock();
        self.0.given.notify_all();
    }
}

impl Place {
    /// Waits for the fiber. `None` if none comes.
    fn wait(&self) -> Option<Sent> {
        let mut fiber = self.fiber.lock();
        loop {
            if let Some(sent) = fiber.take() {
                return Some(sent);
            }
            if self.is_given_up.load(Ordering::Acquire) {
                return None;
            }
            fiber = self.given.wait(fiber);
        }
    }
}

/// Runs the fiber until it wants to go back. The function touches no thread-local (**I14**).
#[inline(never)]
fn run(Sent(lent, _): &Sent) {
    let mut switch = Switch::begin();
    // SAFETY: I3, I14. The worker has lent the suspended fiber to this thread.
    unsafe { lent.fiber.run_on_host(&mut switch) };
}

/// Gives the fiber back when the thread has ended; at once where no other thread can be started.
fn give_back_after(thread: JoinHandle<()>, sent: Sent) {
    let (sender, receiver) = mpsc::channel::<(JoinHandle<()>, Sent)>();
    let wait = move || {
        if let Ok((thread, sent)) = receiver.recv() {
            let _ended = thread.join();
            give_back(sent);
        }
    };
    let name = "cringle-own".into();
    cringle_sys::plainly(|| match Builder::new().name(name).stack_size(STACK_BYTES).spawn(wait) {
        Ok(_) => drop(sender.send((thread, sent))),
        Err(_) => give_back(sent),
    });
}

fn give_back(sent: Sent) {
    struct Back(Sent);
    impl Question for Back {
        fn answer(self: Box<Self>, worker: &Worker) {
            worker.make_runnable(self.0.0.fiber, Cause::Wake);
        }
    }
    let (block, worker, mailbox) = (sent.block(), sent.0.worker, Arc::clone(&sent.1));
    // SAFETY: I2, I14. The worker outlives its fibers; the fiber is suspended. What the worker
    // writes is on the fiber's block, and what it reads does not change.
    unsafe { thread_locals::on_block(block, || worker.as_ref().enter_block()) };
    let is_sent = mailbox.inbox.send(Mail::Ask(Box::new(Back(sent)))).is_ok();
    debug_assert!(is_sent, "I2: a worker outlives its fibers");
}

impl Current {
    /// Whether the fiber may go to a thread of its own: it has thread-locals, and shares them with
    /// no other fiber.
    pub fn may_have_thread(self) -> bool {
        let family = self.fiber.family();
        family.has_own_locals() && family.members() == 1
    }

    /// Continues on a host's thread, as a thread of the system. It must return to its worker by
    /// [`return_to_worker`] before it ends. To the worker it is in the library from now on.
    pub fn continue_on(self, host: Host) {
        debug_assert!(self.may_have_thread(), "I14: its thread-locals go with it");
        let lent = Lent { fiber: self.fiber, worker: NonNull::from(&*self.worker) };
        self.fiber.set_in_program(false);
        self.fiber.set_state(RunState::Waiting(Wait::Thread));
        self.worker.events.suspended(self.fiber, Wait::Thread);
        self.worker.families.lend_to(host);
        let frame = LentFrame::begin();
        self.fiber.switch_to_host();
        frame.end();
        Worker::leave_thread();
        LENT.set(Some(lent));
    }
}

/// Whether the calling code is a fiber's that is on a thread of its own.
#[inline(always)]
pub fn is_on_own_thread() -> bool {
    LENT.get().is_some()
}

/// Has the calling fiber, which is on a thread of its own, go back only after that thread's end.
pub fn end_thread_first() {
    ENDS_FIRST.set(true);
}

/// In a child of `fork`: the caller is the thread of the process.
pub fn forget_own_thread() {
    LENT.set(None);
    ENDS_FIRST.set(false);
}

/// Continues on the worker that has lent the calling fiber, in the library's code.
pub fn return_to_worker() {
    let Some(lent) = LENT.take() else { return };
    let frame = LentFrame::begin();
    lent.fiber.switch_to_host();
    frame.end();
}

impl Worker {
    /// Gives the fiber that has just left to its host.
    #[cold]
    #[inline(never)]
    pub(super) fn give_to_host(&self, fiber: FiberRef) {
        let Some(host) = self.families.take_host() else { return };
        self.foreground.set(None);
        let lent = Lent { fiber, worker: NonNull::from(self) };
        *host.0.fiber.lock() = Some(Sent(lent, Arc::clone(&self.mailbox)));
        host.0.given.notify_all();
    }
}
