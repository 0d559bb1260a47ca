//! Calls of std's functions that make system calls.

use super::lock::OnceLock;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls its argument while the thread has no current fiber.
pub(crate) type Beside = fn(&mut dyn FnMut());

static BESIDE: OnceLock<Beside> = OnceLock::new();

/// Sets how [`plainly`] hides the current fiber. The runtime, which knows the fibers, is above this
/// layer.
pub fn set_beside(beside: Beside) {
    BESIDE.get_or_init(|| beside);
}

/// Whether this program has interposed libc's blocking calls by `cringle-interpose`.
static INTERPOSED: AtomicBool = AtomicBool::new(false);

/// Records that libc's blocking calls are interposed, before `main`.
pub fn set_interposed() {
    INTERPOSED.store(true, Ordering::Relaxed);
}

/// Whether libc's blocking calls are interposed in this program.
#[inline]
pub fn is_interposed() -> bool {
    INTERPOSED.load(Ordering::Relaxed)
}

/// Makes calls of std's without a current fiber. A function of libc that the program has interposed
/// passes such calls on, so they block the thread, and do not suspend the fiber in the middle of
/// the library (**I14**).
///
/// For rare calls that std or socket2 make in several steps. `f` is not code of the program.
pub fn plainly<R>(f: impl FnOnce() -> R) -> R {
    let Some(beside) = BESIDE.get() else { return f() };
    let (mut f, mut result) = (Some(f), None);
    beside(&mut || result = f.take().map(|f| f()));
    result.expect("the closure was called")
}

/// Formats a value whose `Debug` makes system calls. The formatter writes to the program's code,
/// which is not called [plainly].
pub fn debug_plainly(value: &impl Debug, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_pretty = f.alternate();
    let text = plainly(|| if is_pretty { format!("{value:#?}") } else { format!("{value:?}") });
    f.write_str(&text)
}
