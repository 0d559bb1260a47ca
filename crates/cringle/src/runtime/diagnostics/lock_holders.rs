//! Which suspended fiber holds a lock of std that blocks its worker: a guess from stacks.
//!
//! std's locks do not know their holder, and acquire a free lock by inlined code. But the guard of
//! a suspended fiber lies on its stack. So the watchdog reads the address of the futex that blocks
//! a worker from `/proc`, recognises std's object by the futex's value, and searches the stacks of
//! the worker's suspended fibers for the lock's address. (The library's own locks wait with a
//! [mark](crate::sys::lock), so that they are not taken for std's.) A reference to the lock looks
//! almost like a guard, and a guard that was dropped may still be there: so the search waits until
//! the worker has been blocked for long, and the answer is *probable* at best.
//!
//! The worker may continue at any time. So the search reads all memory by the kernel
//! (`process_vm_readv`), at the offsets that debuggers use, and ends where memory is gone. The
//! roster's lock keeps the blocks of fibers meanwhile.

use crate::runtime::fiber::RemoteFiber;
use crate::runtime::label::Origins;
use crate::runtime::shared::Shared;
use crate::sys;

/// The most bytes of a stack, and of all stacks, that are searched.
const STACK_BYTES: usize = 256 << 10;
const TOTAL_BYTES: usize = 64 << 20;
const WORD: usize = size_of::<usize>();
/// The value of a lock begins at most this far from the lock.
const VALUE_WITHIN: usize = 64;

/// The kinds of std's objects, by the values of their futexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Mutex,
    RwLock,
    /// Within a `Once`, `OnceLock` or `LazyLock`.
    Once,
}

/// What a worker waits for, and the fibers that may have to end that wait.
pub(super) struct Found {
    pub(super) object: Object,
    /// Whether they have what looks like a guard, rather than a reference.
    pub(super) is_probable: bool,
    pub(super) fibers: Vec<Suspect>,
}

pub(super) struct Suspect {
    pub(super) origins: Origins,
    /// The object of its wait; `None` if it is ready to run.
    pub(super) wait: Option<&'static str>,
}

/// How a word on a stack refers to the object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Reference,
    Guard,
}

/// Searches the suspended fibers of a worker that waits for this futex, while it runs the fiber
/// with this label. `None` if the futex belongs to no such object, or if no fiber refers to it.
pub(super) fn find(shared: &Shared, worker: u32, running: usize, futex: usize) -> Option<Found> {
    let (object, address) = object_of(futex)?;
    let (mut suspects, mut left) = (Vec::new(), TOTAL_BYTES);
    for peer in &shared.peers {
        let search = || {
            for block in peer.blocks.all() {
                // SAFETY: I2. The block exists, because the roster is open.
                let label = unsafe { RemoteFiber::label(block) };
                let Some(fiber) = RemoteFiber::read(block) else { continue };
                if fiber.host() == worker as usize
                    && std::ptr::from_ref(label).addr() != running
                    && let Some(stack) = used_stack(&fiber, &mut left)
                    && let Some(found) = kind_of(&stack, object, address)
                {
                    let suspect = Suspect { origins: label.read(), wait: fiber.wait() };
                    suspects.push((found, suspect));
                }
            }
        };
        peer.roster.while_open(search);
    }
    let best = suspects.iter().map(|(found, _)| *found).max()?;
    suspects.retain(|(found, _)| *found == best);
    let fibers = suspects.into_iter().map(|(_, suspect)| suspect).collect();
    Some(Found { object, is_probable: best == Match::Guard, fibers })
}

/// Copies the part of a suspended fiber's stack that is searched.
fn used_stack(fiber: &RemoteFiber, left: &mut usize) -> Option<Vec<u8>> {
    let used = fiber.suspended_stack()?;
    let mut stack = vec![0; used.len().min(STACK_BYTES).min(*left)];
    *left -= stack.len();
    sys::read_own(used.start, &mut stack).then_some(stack)
}

/// The object of a futex that a thread waits for, and its address. By std's values: 2 is a mutex
/// that threads wait for, the highest bits of a reader-writer lock are set while threads wait for
/// it, in the word before if that is a writer; 5 is an initialisation that threads wait for.
fn object_of(futex: usize) -> Option<(Object, usize)> {
    const READERS_WAIT: u32 = 1 << 30;
    const WRITERS_WAIT: u32 = 1 << 31;
    let mut value = [0; 4];
    let mut read = |address: usize| {
        let is_read = sys::read_own(address, &mut value);
        if is_read { u32::from_ne_bytes(value) } else { 0 }
    };
    let before = futex.wrapping_sub(4);
    match read(futex) {
        2 => Some((Object::Mutex, futex)),
        5 => Some((Object::Once, futex)),
        value if value & (READERS_WAIT | WRITERS_WAIT) != 0 => Some((Object::RwLock, futex)),
        _ if read(before) & WRITERS_WAIT != 0 => Some((Object::RwLock, before)),
        _ => None,
    }
}

/// Returns the best match on a stack.
fn kind_of(stack: &[u8], object: Object, address: usize) -> Option<Match> {
    let word = |at: usize| stack[at * WORD..][..WORD].try_into().map(usize::from_ne_bytes).ok();
    let is_in_lock = |word: usize| (address + 1..=address + VALUE_WITHIN).contains(&word);
    let words = stack.len() / WORD;
    let matches = (0..words).filter(|&at| word(at) == Some(address)).map(|at| {
        let next = if at + 1 < words { word(at + 1) } else { None };
        let before = at.checked_sub(1).and_then(word);
        // A guard has the lock's address and then a flag, a reader's the value's address beside it.
        // Of a value that is being initialised, other fibers have hardly a reference.
        let is_guard = match object {
            Object::Mutex => next.is_some_and(|next| next as u8 <= 1),
            Object::Once => true,
            Object::RwLock => {
                next.is_some_and(|next| next as u8 <= 1 || is_in_lock(next))
                    || before.is_some_and(is_in_lock)
            }
        };
        if is_guard { Match::Guard } else { Match::Reference }
    });
    matches.max()
}

#[cfg(all(test, not(loom)))]
mod tests;
