//! Asks a fiber's own frames whether it unwinds.
//!
//! std counts panics for each thread and no fiber, so while one fiber is suspended in a destructor that its
//! panic runs, the count says nothing about the others. The stack does: code that runs because of an unwinding
//! is called from a landing pad, and the compiler lets nothing unwind out of one. Each such call has an entry
//! in the tables of its function that ends an unwinding in an abort, and the unwinder finds that entry before
//! any `catch_unwind` further out. So this module walks the frames as the first phase of an unwinding does, and
//! reads the same tables (`.gcc_except_table`, the format of the Itanium C++ ABI).
//!
//! The optimiser puts a landing pad and the `catch_unwind` around it into one frame. So the library calls the code of
//! others [`apart`](super::unwinding::catch_apart) from its own `catch_unwind`: one frame further out always has one.
//!
//! A call from an `extern "C"` function has such an entry too. It counts as unwinding: nothing may be raised
//! there either.
//!
//! A third kind of code runs between the two: std calls the hook, and before it formats the message, with the panic
//! counted and nothing unwound. Those frames lie above one of std's own, which is found by its address.
//!
//! The walk costs up to a microsecond for each frame. It is made only where the count is ambiguous, and where
//! a fiber is suspended while it is not zero.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stack that a walk takes, as an unwinding does.
pub(super) const WALK_BYTES: usize = 8 << 10;
/// Frames between a panic and a wait of the code that formats its message, at most: beyond them nobody looks, so
/// that a deep stack does not pay for all of its frames whenever it is suspended.
const MOST_FRAMES: u32 = 128;

/// What the unwinder would do at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Nothing, or run destructors: it would go on to the caller.
    Pass,
    /// Abort: a call from a landing pad, or from a function that must not unwind.
    Abort,
    /// Hand the payload to a `catch_unwind`.
    Catch,
}

/// One frame, as a walk shows it.
struct Frame {
    /// The address at which it ends.
    cfa: usize,
    action: Action,
    /// The address of its function.
    function: usize,
}

/// The function of std that formats a panic's message and calls the hook, once a hook has noted it.
static RAISER: AtomicUsize = AtomicUsize::new(0);

/// Notes which function has called the panic hook: the one whose frame holds what the hook is passed.
pub(super) fn note_raiser(info: &PanicHookInfo<'_>) {
    if RAISER.load(Ordering::Relaxed) == 0 {
        let info = std::ptr::from_ref(info).addr();
        walk(0..usize::MAX, |frame| {
            let is_raiser = frame.cfa > info;
            if is_raiser {
                RAISER.store(frame.function, Ordering::Relaxed);
            }
            !is_raiser
        });
    }
}

/// Finds out from frames, shown from the innermost outwards, what runs in them.
struct Judgement {
    raiser: usize,
    /// An `extern "C"` function is the first of each stack: what may not leave it has no `catch_unwind` behind it.
    may_leave: bool,
    unwinds: bool,
    raises: bool,
}

impl Judgement {
    fn new() -> Judgement {
        Judgement::with_raiser(RAISER.load(Ordering::Relaxed))
    }

    fn with_raiser(raiser: usize) -> Judgement {
        Judgement { raiser, may_leave: true, unwinds: false, raises: false }
    }

    /// Whether another frame could change it.
    fn see(&mut self, frame: &Frame) -> bool {
        self.raises = self.raiser != 0 && frame.function == self.raiser;
        self.unwinds |= frame.action == Action::Catch && !self.may_leave;
        self.may_leave &= frame.action != Action::Abort;
        !self.raises && !self.unwinds
    }
}

/// Whether the caller's frames on this stack run within an unwinding, or where std is about to begin one.
#[inline(never)]
pub(super) fn are_unwinding(stack: Range<usize>) -> bool {
    let mut judgement = Judgement::new();
    walk(stack, |frame| judgement.see(&frame));
    judgement.unwinds || judgement.raises
}

/// The same for a panic hook's caller: whether its panic began within an unwinding.
#[inline(never)]
pub(super) fn were_unwinding(stack: Range<usize>) -> bool {
    let mut judgement = Judgement::with_raiser(0);
    walk(stack, |frame| judgement.see(&frame));
    judgement.unwinds
}

/// Whether the calling thread, whatever stack it is on, runs a destructor of an unwinding, and no panic hook in there.
#[inline(never)]
pub(super) fn are_in_destructor() -> bool {
    let mut judgement = Judgement::new();
    walk(0..usize::MAX, |frame| judgement.see(&frame));
    judgement.unwinds
}

/// Whether the caller's frames run within a panic hook, or format the message of a panic: std has begun a panic, and
/// unwinds nothing yet. `panics` says that std's count is that of this stack.
#[inline(never)]
pub(super) fn are_raising(stack: Range<usize>, panics: bool) -> bool {
    let (mut judgement, mut left) = (Judgement::new(), MOST_FRAMES);
    let is_whole = walk(stack, |frame| {
        left -= 1;
        judgement.see(&frame) && left > 0
    });
    // Before the first call of a hook the function is not known: what std counts, and no frame shows, has just begun.
    judgement.raises || panics && is_whole && !judgement.unwinds
}

/// The address of the frame that would catch what is raised now: all frames below it would be unwound.
#[inline(never)]
pub(super) fn catcher(stack: Range<usize>) -> usize {
    let mut address = usize::MAX;
    walk(stack, |frame| {
        if frame.action != Action::Pass {
            address = frame.cfa;
        }
        frame.action == Action::Pass
    });
    address
}

/// The address of the innermost frame that is being unwound, if one is.
#[inline(never)]
pub(super) fn unwound(stack: Range<usize>) -> Option<usize> {
    let mut address = None;
    walk(stack, |frame| {
        address = (frame.action == Action::Abort).then_some(frame.cfa);
        address.is_none()
    });
    address
}

/// Shows the frames of a stack, from the caller's outwards, until `visit` has seen enough. True if it has seen all
/// of them; false too where the frames of this stack end without a way to the next one.
fn walk<V: FnMut(Frame) -> bool>(stack: Range<usize>, visit: V) -> bool {
    let mut walk = Walk { stack, visit, frames: 0, is_whole: false };
    // SAFETY: the callback has the type that the unwinder calls, and its argument lives until the walk ends.
    unsafe { _Unwind_Backtrace(look::<V>, (&raw mut walk).cast()) };
    walk.is_whole
}

struct Walk<V> {
    stack: Range<usize>,
    visit: V,
    frames: usize,
    is_whole: bool,
}

extern "C" fn look<V: FnMut(Frame) -> bool>(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: it is the argument of `_Unwind_Backtrace` above, which has the same type, and is used here alone.
    let walk = unsafe { &mut *walk.cast::<Walk<V>>() };
    // SAFETY: the unwinder passes the context of a frame.
    let frame = unsafe {
        let (cfa, function) = (_Unwind_GetCFA(context), _Unwind_GetRegionStart(context));
        Frame { cfa, action: action(context), function }
    };
    // The frames of the fiber end where those of the scheduler begin, which lie on another stack.
    if !walk.stack.contains(&frame.cfa) {
        walk.is_whole = walk.frames > 0;
        return STOP;
    }
    walk.frames += 1;
    match (walk.visit)(frame) {
        true => GO_ON,
        false => STOP,
    }
}

/// # Safety
///
/// It is the context of a frame.
unsafe fn action(context: *mut Context) -> Action {
    // SAFETY: by the contract.
    let table = unsafe { _Unwind_GetLanguageSpecificData(context) };
    if table.is_null() {
        return Action::Pass;
    }
    let mut before = 0;
    // SAFETY: by the contract.
    let (ip, start) =
        unsafe { (_Unwind_GetIPInfo(context, &raw mut before), _Unwind_GetRegionStart(context)) };
    // A return address is that of the instruction after the call.
    let ip = if before == 0 { ip.wrapping_sub(1) } else { ip };
    // SAFETY: it is the table of the function that this address is in.
    unsafe { Table(table).action(ip.wrapping_sub(start)) }.unwrap_or(Action::Pass)
}

const OMITTED: u8 = 0xff;

/// A cursor in a function's table.
struct Table(*const u8);

impl Table {
    /// What the table says of the call at this offset in its function; `None` where it says nothing, or is
    /// encoded in a way that no compiler uses for Rust.
    ///
    /// # Safety
    ///
    /// The cursor is at the start of a whole table.
    unsafe fn action(mut self, offset: usize) -> Option<Action> {
        // SAFETY: by the contract, each value is read where the format has it.
        unsafe {
            if self.byte() != OMITTED {
                // Landing pads are counted from another place than the function: only C++ could.
                return None;
            }
            if self.byte() != OMITTED {
                self.unsigned();
            }
            let encoding = self.byte();
            let length = self.unsigned();
            let actions = self.0.wrapping_add(length);
            while self.0 < actions {
                let (start, length) = (self.value(encoding)?, self.value(encoding)?);
                let landing_pad = self.value(encoding)?;
                let action = self.unsigned();
                if offset < start {
                    break;
                }
                if offset < start + length {
                    return Some(match (landing_pad, action) {
                        (0, _) | (_, 0) => Action::Pass,
                        (_, action) => match Table(actions.wrapping_add(action - 1)).signed() {
                            0 => Action::Pass,
                            1.. => Action::Catch,
                            _ => Action::Abort,
                        },
                    });
                }
            }
            None
        }
    }

    unsafe fn byte(&mut self) -> u8 {
        // SAFETY: by the caller's contract.
        let byte = unsafe { *self.0 };
        self.0 = self.0.wrapping_add(1);
        byte
    }

    unsafe fn value(&mut self, encoding: u8) -> Option<usize> {
        // SAFETY: by the caller's contract.
        unsafe {
            match encoding {
                0x01 => Some(self.unsigned()),
                0x03 => {
                    let value = self.0.cast::<u32>().read_unaligned();
                    self.0 = self.0.wrapping_add(4);
                    Some(value as usize)
                }
                _ => None,
            }
        }
    }

    /// A LEB128.
    unsafe fn unsigned(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            // SAFETY: by the caller's contract.
            let byte = unsafe { self.byte() };
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// A LEB128 with a sign.
    unsafe fn signed(&mut self) -> isize {
        let (mut value, mut shift) = (0, 0);
        loop {
            // SAFETY: by the caller's contract.
            let byte = unsafe { self.byte() };
            value |= isize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0 && shift < isize::BITS;
                return if negative { value | (-1 << shift) } else { value };
            }
        }
    }
}

/// A frame, as the unwinder hands it out.
#[repr(C)]
struct Context {
    opaque: [u8; 0],
}

/// `_URC_NO_REASON`, and any other.
const GO_ON: c_int = 0;
const STOP: c_int = 5;

// std links the library that has them.
unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(
        callback: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
    fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> usize;
    fn _Unwind_GetLanguageSpecificData(context: *mut Context) -> *const u8;
    fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
}
