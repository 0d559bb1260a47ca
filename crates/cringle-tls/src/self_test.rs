//! Checks once that a block behaves as a thread does, in the glibc that is loaded.

use super::allocator::Allocator;
use super::block::Block;
use super::glibc::Glibc;
use super::{set_id, thread_pointer};
use cringle_sys::cannot_start;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

thread_local! {
    static PROBE: Cell<u32> = const { Cell::new(UNTOUCHED) };
}
const UNTOUCHED: u32 = 0x7e57_0001;
const TOUCHED: u32 = 0x7e57_0002;

static DESTROYED: AtomicU32 = AtomicU32::new(0);

/// Finds what a block needs, and checks everything.
pub(super) fn run() -> Result<&'static Glibc, String> {
    // In a thread: the main thread's descriptor differs in places, and the first thread that is
    // started makes glibc set up what threads need.
    let glibc = in_thread(|| {
        let mut glibc = Glibc::find()?;
        set_id::wrap_handler()?;
        check_lock(&glibc)?;
        glibc.resolver = Some(glibc.find_resolver()?);
        Ok(glibc)
    })?;
    // Blocks are never freed, nor is this.
    let glibc: &'static Glibc = Box::leak(Box::new(glibc));
    in_thread(|| check_block(glibc))?;
    in_thread(|| find_allocator(glibc))?;
    Ok(glibc)
}

fn in_thread<R: Send>(f: impl FnOnce() -> Result<R, String> + Send) -> Result<R, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, f);
        let thread = thread.map_err(|e| cannot_start("a thread for the check", &e).to_string())?;
        thread.join().map_err(|_| "the check panicked".to_owned())?
    })
}

/// Checks that glibc's lock is where it is expected: while we have it, a thread that starts another
/// waits for it.
fn check_lock(glibc: &Glibc) -> Result<(), String> {
    let (may_start, has_started) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let starter = || {
            while !may_start.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let other = std::thread::Builder::new().spawn(|| ());
            has_started.store(true, Ordering::Release);
            drop(other.map(std::thread::JoinHandle::join));
        };
        let starter = std::thread::Builder::new().spawn_scoped(scope, starter);
        let starter =
            starter.map_err(|e| cannot_start("a thread for the check", &e).to_string())?;
        let is_the_lock = glibc.stack_list.with_lock(|| {
            may_start.store(true, Ordering::Release);
            loop {
                if glibc.stack_list.is_contended() {
                    return true;
                }
                if has_started.load(Ordering::Acquire) {
                    return false;
                }
                std::hint::spin_loop();
                std::thread::yield_now();
            }
        });
        // Without this, the end of the scope would wait for the closure, but not for the thread.
        drop(starter.join());
        is_the_lock.then_some(()).ok_or_else(|| "its list of threads has another lock".to_owned())
    })
}

/// Checks what code sees on a block.
fn check_block(glibc: &'static Glibc) -> Result<(), String> {
    let block = Block::with(glibc).map_err(|e| e.to_string())?;
    PROBE.set(TOUCHED);
    // SAFETY: I14. The block is new, and no other code's.
    unsafe { thread_pointer::on_block(block.thread_pointer(), || look_around(&block)) }?;
    expect(DESTROYED.load(Ordering::Relaxed) == 1, "a key's destructor was not called")?;
    expect(PROBE.get() == TOUCHED, "a thread-local of the thread was changed")?;
    // SAFETY: I14. The code has returned.
    unsafe { block.reset() };
    let read = || expect(PROBE.get() == UNTOUCHED, "a block that is used again is not as new");
    // SAFETY: I14, as above.
    unsafe { thread_pointer::on_block(block.thread_pointer(), read) }
}

/// Finds what blocks share of the allocator. They may share nothing.
fn find_allocator(glibc: &'static Glibc) -> Result<(), String> {
    let new = || Block::with(glibc).map_err(|e| e.to_string());
    let (first, second) = (new()?, new()?);
    // SAFETY: I14. The blocks are new, and no other code's.
    if let Some(found) = unsafe { Allocator::find(glibc, [&first, &second]) } {
        glibc.allocator.store(Box::leak(Box::new(found)), Ordering::Release);
    }
    Ok(())
}

/// Runs on the block.
fn look_around(block: &Block) -> Result<(), String> {
    // SAFETY: I14. This code runs on the block.
    unsafe { block.begin() };
    // SAFETY: I14, as above.
    unsafe { block.find_destructor_list() };
    expect(PROBE.get() == UNTOUCHED, "a thread-local has not its initial value")?;
    PROBE.set(TOUCHED);
    // SAFETY: I15. Calls of libc with values of their types.
    unsafe {
        expect(libc::isalpha(c_int_of(b'x')) != 0, "libc's tables of characters are missing")?;
        expect(libc::close(-1) == -1, "a closed descriptor could be closed")?;
        expect(*libc::__errno_location() == libc::EBADF, "errno does not work")?;
        let memory = libc::malloc(100);
        expect(!memory.is_null(), "malloc does not work")?;
        libc::free(memory);
        check_mutex()?;
        check_keys(block)
    }
}

fn c_int_of(byte: u8) -> libc::c_int {
    byte.into()
}

/// Checks that a recursive mutex knows its owner.
unsafe fn check_mutex() -> Result<(), String> {
    // SAFETY: I15. A mutex of this frame, initialised before its use.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        let mut mutex: libc::pthread_mutex_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
        libc::pthread_mutex_init(&mut mutex, &attributes);
        let first = libc::pthread_mutex_lock(&mut mutex);
        let second = libc::pthread_mutex_lock(&mut mutex);
        let unlocked = libc::pthread_mutex_unlock(&mut mutex);
        libc::pthread_mutex_destroy(&mut mutex);
        let right = (first, second, unlocked) == (0, libc::EDEADLK, 0);
        expect(right, "a mutex does not know its owner")
    }
}

/// Checks that the destructor of a value for a key is called.
unsafe fn check_keys(block: &Block) -> Result<(), String> {
    unsafe extern "C" fn destroy(_value: *mut c_void) {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
    }
    DESTROYED.store(0, Ordering::Relaxed);
    // SAFETY: calls of libc with values of their types; I14, this code runs on the block.
    unsafe {
        let mut key = 0;
        expect(libc::pthread_key_create(&mut key, Some(destroy)) == 0, "no key is left")?;
        let value = (&raw const DESTROYED).cast();
        let set = libc::pthread_setspecific(key, value);
        let got = libc::pthread_getspecific(key);
        block.run_destructors();
        let gone = libc::pthread_getspecific(key).is_null();
        libc::pthread_key_delete(key);
        expect(set == 0 && got.cast_const() == value && gone, "values for keys do not work")
    }
}

fn expect(holds: bool, problem: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("in this glibc {problem}")) }
}
