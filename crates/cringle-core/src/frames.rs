//! Determines from a fiber's frames whether the fiber unwinds.
//!
//! std counts panics by thread, not by fiber. While one fiber is suspended in a destructor that its
//! panic runs, the count says nothing about the other fibers. Their stacks do. Code that runs
//! because of an unwinding is called from a landing pad, and the compiler lets nothing unwind out
//! of a landing pad: the call has an entry in the exception table of its function that turns an
//! unwinding into an abort. The unwinder would find that entry before any `catch_unwind` further
//! out. So this module walks the frames as the first phase of an unwinding does, and reads the same
//! tables (`.gcc_except_table`, in the format of the Itanium C++ ABI).
//!
//! The optimiser may put a landing pad and the `catch_unwind` around it into one frame. So the
//! library calls foreign code [`apart`](super::unwinding::catch_apart) from its own `catch_unwind`:
//! then a frame further out always has one.
//!
//! A call from an `extern "C"` function has such an abort entry too. It counts as unwinding,
//! because nothing may be raised there either.
//!
//! Code that formats a panic's message, and the panic hook, run before that: std has counted the
//! panic and unwound nothing. Their frames lie above a function of std, which this module
//! recognises by its address.
//!
//! A walk takes up to a microsecond for each frame. The library walks only where the count is
//! ambiguous, and where a fiber is suspended while the count is not zero.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The stack that a walk may take, as an unwinding does.
pub(super) const WALK_BYTES: usize = 8 << 10;
/// The frames in which the code that formats a panic's message is searched. A limit, so that a deep
/// stack does not pay for all of its frames at each suspension.
const MAX_RAISING_FRAMES: u32 = 128;

/// The unwinder's action at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Continue to the caller, perhaps after destructors.
    Pass,
    /// Abort: the call comes from a landing pad, or from a function that must not unwind.
    Abort,
    /// Hand the payload to a `catch_unwind`.
    Catch,
}

/// One frame of a walk.
struct Frame {
    /// The canonical frame address: where the frame ends.
    cfa: usize,
    action: Action,
    /// The start address of its function.
    function: usize,
}

/// The function of std that formats a panic's message and calls the hook; 0 until a hook has noted
/// it.
static RAISER: AtomicUsize = AtomicUsize::new(0);

/// Notes the function that has called the panic hook: its frame holds the hook's argument.
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

/// The conclusion from the frames seen so far, from the innermost outwards.
struct FrameState {
    raiser: usize,
    /// No abort entry was seen yet. (The first function of each stack is `extern "C"` and has one,
    /// without a `catch_unwind` behind it.)
    may_leave: bool,
    unwinds: bool,
    raises: bool,
}

impl FrameState {
    fn new() -> FrameState {
        FrameState::with_raiser(RAISER.load(Ordering::Relaxed))
    }

    fn with_raiser(raiser: usize) -> FrameState {
        FrameState { raiser, may_leave: true, unwinds: false, raises: false }
    }

    /// Considers the next frame. False if no further frame could change the result.
    fn add(&mut self, frame: &Frame) -> bool {
        self.raises = self.raiser != 0 && frame.function == self.raiser;
        self.unwinds |= frame.action == Action::Catch && !self.may_leave;
        self.may_leave &= frame.action != Action::Abort;
        !self.raises && !self.unwinds
    }
}

/// Whether the caller's frames on this stack run within an unwinding, or within a panic that is
/// about to unwind.
#[inline(never)]
pub(super) fn are_unwinding(stack: Range<usize>) -> bool {
    let mut state = FrameState::new();
    walk(stack, |frame| state.add(&frame));
    state.unwinds || state.raises
}

/// For a panic hook: whether its panic began within an unwinding.
#[inline(never)]
pub(super) fn were_unwinding(stack: Range<usize>) -> bool {
    let mut state = FrameState::with_raiser(0);
    walk(stack, |frame| state.add(&frame));
    state.unwinds
}

/// Whether the calling thread, on any stack, runs a destructor of an unwinding, and no panic hook
/// within it.
#[inline(never)]
pub(super) fn are_in_destructor() -> bool {
    let mut state = FrameState::new();
    walk(0..usize::MAX, |frame| state.add(&frame));
    state.unwinds
}

/// Whether the caller's frames run within a panic hook, or format the message of a panic: std has
/// counted the panic, and unwinds nothing yet. `panics`: std's count is due to this stack.
#[inline(never)]
pub(super) fn are_raising(stack: Range<usize>, panics: bool) -> bool {
    let (mut state, mut left) = (FrameState::new(), MAX_RAISING_FRAMES);
    let is_whole = walk(stack, |frame| {
        left -= 1;
        state.add(&frame) && left > 0
    });
    // Before the first call of a hook the function is unknown. A panic that std counts, and that no
    // frame shows, has just begun.
    state.raises || panics && is_whole && !state.unwinds
}

/// The address of the frame that would catch a payload raised now. All frames below it would be
/// unwound.
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

/// Calls `visit` with the frames of a stack, from the caller's outwards, until it returns false.
/// True if it has seen all frames, and the walk has reached the next stack.
fn walk<V: FnMut(Frame) -> bool>(stack: Range<usize>, visit: V) -> bool {
    let mut walk = Walk { stack, visit, frames: 0, is_whole: false };
    // SAFETY: by the contract of the unwinder. The callback has the right type, and its argument
    // lives until the walk ends.
    unsafe { _Unwind_Backtrace(on_frame::<V>, (&raw mut walk).cast()) };
    walk.is_whole
}

struct Walk<V> {
    stack: Range<usize>,
    visit: V,
    frames: usize,
    is_whole: bool,
}

extern "C" fn on_frame<V: FnMut(Frame) -> bool>(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: by the contract of the unwinder, this is the argument of `_Unwind_Backtrace` in
    // `walk::<V>`. Only this function uses it.
    let walk = unsafe { &mut *walk.cast::<Walk<V>>() };
    // SAFETY: by the contract of the unwinder, this is the context of a frame.
    let frame = unsafe {
        let (cfa, function) = (_Unwind_GetCFA(context), _Unwind_GetRegionStart(context));
        Frame { cfa, action: action(context), function }
    };
    // The fiber's frames end where the scheduler's begin, on another stack.
    if !walk.stack.contains(&frame.cfa) {
        walk.is_whole = walk.frames > 0;
        return STOP;
    }
    walk.frames += 1;
    if (walk.visit)(frame) { CONTINUE } else { STOP }
}

/// Reads the action for the call that this frame is in.
///
/// # Safety
///
/// `context` is the context of a frame.
unsafe fn action(context: *mut Context) -> Action {
    // SAFETY: by this function's contract.
    let table = unsafe { _Unwind_GetLanguageSpecificData(context) };
    if table.is_null() {
        return Action::Pass;
    }
    let mut before = 0;
    // SAFETY: by this function's contract.
    let (ip, start) =
        unsafe { (_Unwind_GetIPInfo(context, &raw mut before), _Unwind_GetRegionStart(context)) };
    // A return address points behind the call.
    let ip = if before == 0 { ip.wrapping_sub(1) } else { ip };
    // SAFETY: by the contract of the unwinder, this is the whole table of the function that
    // contains the address.
    unsafe { TableCursor(table).action(ip.wrapping_sub(start)) }.unwrap_or(Action::Pass)
}

const OMITTED: u8 = 0xff;

/// A cursor in a function's exception table.
struct TableCursor(*const u8);

impl TableCursor {
    /// Reads the action for the call at this offset in the function. `None` if the table has no
    /// entry for it, or an encoding that no compiler uses for Rust.
    ///
    /// # Safety
    ///
    /// The cursor is at the start of a whole table.
    unsafe fn action(mut self, offset: usize) -> Option<Action> {
        // SAFETY: by this function's contract. Each value is read where the format has it.
        unsafe {
            if self.byte() != OMITTED {
                // Landing pads relative to another address than the function's: not in Rust.
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
                        (_, action) => match TableCursor(actions.wrapping_add(action - 1)).signed()
                        {
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
        // SAFETY: by the contract of `action`.
        let byte = unsafe { *self.0 };
        self.0 = self.0.wrapping_add(1);
        byte
    }

    unsafe fn value(&mut self, encoding: u8) -> Option<usize> {
        // SAFETY: by the contract of `action`.
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

    /// Reads an unsigned LEB128.
    unsafe fn unsigned(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            // SAFETY: by the contract of `action`.
            let byte = unsafe { self.byte() };
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// Reads a signed LEB128.
    unsafe fn signed(&mut self) -> isize {
        let (mut value, mut shift) = (0, 0);
        loop {
            // SAFETY: by the contract of `action`.
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

/// The unwinder's view of a frame.
#[repr(C)]
pub struct Context {
    opaque: [u8; 0],
}

/// `_URC_NO_REASON` continues a walk, any other code stops it.
pub const CONTINUE: c_int = 0;
pub const STOP: c_int = 5;

// In the library that std links.
unsafe extern "C-unwind" {
    pub fn _Unwind_Backtrace(
        callback: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    pub fn _Unwind_GetCFA(context: *mut Context) -> usize;
    pub fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> usize;
    fn _Unwind_GetLanguageSpecificData(context: *mut Context) -> *const u8;
    fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
}
