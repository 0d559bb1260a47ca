//! The place in the program that starts a thread which is a fiber.
//!
//! std or C calls `pthread_create`, so no `Location` of the program arrives there. Where the hazard
//! detector is compiled in, the frames of the call are kept, once for each way to get there. Their
//! names are looked up later, because that takes up to a second: by the watchdog, or by the first
//! dump.

use super::fiber::FiberRef;
use super::frames::{_Unwind_Backtrace, _Unwind_GetIPInfo, CONTINUE, Context, STOP};
use super::hazards;
use super::worker::Current;
use cringle_sys::debug_info::Field;
use cringle_sys::fork;
use cringle_sys::lock::{Mutex, OnceLock};
use std::backtrace::Backtrace;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What is shown while the place is unknown.
const UNKNOWN: &str = "pthread_create";
/// The frames that distinguish two places: the frames of this library and of std, and some of the
/// program.
const FRAMES: usize = 32;
/// The most places that are kept.
const MOST: usize = 256;

/// See the module. It lives for ever.
pub struct SpawnPlace {
    frames: [usize; FRAMES],
    backtrace: Mutex<Option<Backtrace>>,
    text: OnceLock<&'static str>,
    /// Of the process that has kept it. In a child of `fork`, the text may be half looked up.
    generation: u32,
    /// The one that was kept before.
    next: Option<&'static SpawnPlace>,
}

/// Where a debugger finds the text.
pub const FIELDS: &[Field] = &[Field::new(
    "spawn_place.text",
    offset_of!(SpawnPlace, text) + OnceLock::<&'static str>::VALUE,
)];

/// The place that was kept last.
static LAST: AtomicPtr<SpawnPlace> = AtomicPtr::new(std::ptr::null_mut());

static OF_ALL_OTHERS: SpawnPlace = SpawnPlace::new([0; FRAMES], None, u32::MAX, None);

fn kept() -> impl Iterator<Item = &'static SpawnPlace> {
    // SAFETY: I2. The pointer is null, or points to a place, which lives for ever.
    let last = unsafe { LAST.load(Ordering::Acquire).as_ref() };
    std::iter::successors(last, |place| place.next)
}

/// Looks up the texts of all places that are kept.
pub fn look_up_all() {
    kept().for_each(|place| _ = place.text());
}

impl SpawnPlace {
    const fn new(
        frames: [usize; FRAMES],
        backtrace: Option<Backtrace>,
        generation: u32,
        next: Option<&'static SpawnPlace>,
    ) -> SpawnPlace {
        let backtrace = Mutex::new(backtrace);
        SpawnPlace { frames, backtrace, text: OnceLock::new(), generation, next }
    }

    /// Returns the place as `file:line:column`, or the name of the function that std or C has
    /// called.
    pub fn text(&self) -> &'static str {
        if let Some(text) = self.text.get() {
            return text;
        }
        let has_room = Current::identity().is_none_or(|running| running.has_room_for_place());
        if !has_room || self.generation != fork::generation() {
            return UNKNOWN;
        }
        self.text.get_or_init(|| {
            let backtrace = self.backtrace.lock().take();
            let place = backtrace.and_then(|backtrace| hazards::first_place(&backtrace));
            place.map_or(UNKNOWN, |place| String::leak(place))
        })
    }
}

impl fmt::Debug for SpawnPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.get().copied().unwrap_or(UNKNOWN))
    }
}

/// The place at which the fiber, which calls this, calls `pthread_create`.
pub fn of_caller(fiber: FiberRef) -> &'static SpawnPlace {
    if !hazards::is_active() || !fiber.has_room_for_place() {
        return &OF_ALL_OTHERS;
    }
    let frames = Frames::of_caller().addresses;
    if let Some(known) = kept().find(|place| place.frames == frames) {
        return known;
    }
    if kept().count() >= MOST {
        return &OF_ALL_OTHERS;
    }
    let backtrace = cringle_sys::plainly(Backtrace::force_capture);
    // SAFETY: I2. As in `kept`.
    let next = unsafe { LAST.load(Ordering::Acquire).as_ref() };
    let place = SpawnPlace::new(frames, Some(backtrace), fork::generation(), next);
    let place = Box::leak(Box::new(place));
    // Of two that are added at once, one is not found again: no harm.
    LAST.store(std::ptr::from_mut(place), Ordering::Release);
    place
}

/// The place of a thread that a thread of the system starts.
pub fn of_outsider() -> &'static SpawnPlace {
    &OF_ALL_OTHERS
}

/// The innermost addresses of code among the caller's frames.
struct Frames {
    addresses: [usize; FRAMES],
    len: usize,
}

impl Frames {
    #[inline(never)]
    fn of_caller() -> Frames {
        let mut frames = Frames { addresses: [0; FRAMES], len: 0 };
        // SAFETY: by the contract of the unwinder. The callback has the right type, and its
        // argument lives until the walk ends.
        unsafe { _Unwind_Backtrace(on_frame, (&raw mut frames).cast()) };
        frames
    }
}

extern "C" fn on_frame(context: *mut Context, frames: *mut c_void) -> c_int {
    // SAFETY: by the contract of the unwinder, this is the argument of `_Unwind_Backtrace` in
    // `Frames::of_caller`. Only this function uses it.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    let mut before = 0;
    // SAFETY: by the contract of the unwinder, this is the context of a frame.
    frames.addresses[frames.len] = unsafe { _Unwind_GetIPInfo(context, &raw mut before) };
    frames.len += 1;
    if frames.len < FRAMES { CONTINUE } else { STOP }
}
