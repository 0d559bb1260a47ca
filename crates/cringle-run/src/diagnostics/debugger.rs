//! The roots from which a debugger's script reads the fibers: of a stopped process, or of a core
//! file.
//!
//! The script (`debugger/cringle_debug.py`) finds [`ROOTS`] by its section, which also a stripped
//! program has. It needs no type information: the roots refer to tables of offsets, one from each
//! module that owns the fields (`FIELDS`), to the words of waits and ops, and to the runtimes. The
//! blocks of a worker's fibers are in its [`BlockIndex`]. The object of a wait comes with a `Form`
//! (`wait_target.rs` of `cringle-core`), which says what the object is and where its parts are; the
//! dump calls the same form's function. A change of the tables' meaning changes [`VERSION`], here
//! and in the script.
//!
//! The program writes here when a runtime begins and ends, and when it crashes.
//!
//! The script finds a suspended fiber's stack pointer in its coroutine, below the three registers
//! that `corosensei` has pushed. In gdb an unwinder continues the innermost frame of the selected
//! thread there, so no register is changed, and it works on core files.

use cringle_core::block_index::{self, BlockIndex};
use cringle_core::counters::{self, Counters};
use cringle_core::fiber::{self, Running, WAIT_PHRASES};
use cringle_core::identity;
use cringle_core::shared::{Peer, Shared};
use cringle_core::spawn_place;
use cringle_core::worker;
use cringle_driver as driver;
use cringle_sys::debug_info::{Field, Table, Text};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const VERSION: u32 = 1;
const OPS: usize = driver::OP_PHRASES.len();

/// See the module.
#[repr(C)]
struct Roots {
    magic: [u8; 16],
    version: u32,
    fields: Table<Table<Field>>,
    waits: Table<Text>,
    ops: Table<Text>,
    /// The meaning of each op's place.
    places: Table<Text>,
    /// The runtimes of the process, the last one first.
    runtimes: AtomicPtr<Node>,
    /// When the process crashed, by the workers' coarse clock. Core files do not say it.
    stopped_ns: AtomicU64,
}

#[used]
#[unsafe(link_section = ".cringle.debugger")]
static ROOTS: Roots = Roots {
    magic: *b"cringle-debugger",
    version: VERSION,
    fields: Table::new(&FIELDS),
    waits: Table::new(&WAITS),
    ops: Table::new(&OP_PHRASES),
    places: Table::new(&OP_PLACES),
    runtimes: AtomicPtr::new(std::ptr::null_mut()),
    stopped_ns: AtomicU64::new(0),
};

static FIELDS: [Table<Field>; 8] = {
    let [block, ops] = fiber::FIELDS;
    [
        block,
        ops,
        Table::new(identity::FIELDS),
        Table::new(spawn_place::FIELDS),
        Table::new(block_index::FIELDS),
        Table::new(counters::FIELDS),
        Table::new(worker::FIELDS),
        Table::new(driver::FIELDS),
    ]
};
static WAITS: [Text; WAIT_PHRASES.len()] = Text::all(&WAIT_PHRASES);
static OP_PHRASES: [Text; OPS] = Text::all(driver::OP_PHRASES);
static OP_PLACES: [Text; OPS] = Text::all(driver::OP_PLACES);

/// Notes when the process crashed. For signal handlers.
pub(crate) fn note_crash() {
    let now = cringle_sys::coarse_ns();
    let _first = ROOTS.stopped_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
}

/// One runtime.
#[repr(C)]
struct Node {
    next: *mut Node,
    workers: *const Entry,
    count: usize,
}

/// One worker.
#[repr(C)]
struct Entry {
    running: *const AtomicPtr<Running>,
    blocks: *const BlockIndex,
    counters: *const Counters,
}

/// The entry of a runtime, which is listed from [`Listed::begin`] to [`Listed::end`].
pub(super) struct Listed {
    node: NonNull<Node>,
    /// Which the node points to.
    _workers: Box<[Entry]>,
}

// SAFETY: I2. The pointers are for the debugger alone; the program follows only those to nodes,
// under the lock of the registry.
unsafe impl Send for Listed {}
// SAFETY: I2. As above.
unsafe impl Sync for Listed {}

impl Listed {
    /// Lists a runtime. The caller holds the lock of the registry, and keeps the runtime until it
    /// has called [`end`](Self::end).
    pub(super) fn begin(shared: &Shared) -> Listed {
        let workers: Box<[Entry]> = shared.peers.iter().map(Entry::of).collect();
        let next = ROOTS.runtimes.load(Ordering::Relaxed);
        let node = Box::new(Node { next, workers: workers.as_ptr(), count: workers.len() });
        let node = NonNull::from(Box::leak(node));
        ROOTS.runtimes.store(node.as_ptr(), Ordering::Release);
        Listed { node, _workers: workers }
    }

    /// Strikes the runtime out, once. The caller holds the lock of the registry.
    pub(super) fn end(&mut self) {
        let own = self.node.as_ptr();
        // SAFETY: I2. A node in the list exists until `end` has taken it out, and under the lock of
        // the registry only this call refers to nodes. The own node came from a box.
        unsafe {
            let next = (*own).next;
            let mut at = ROOTS.runtimes.load(Ordering::Relaxed);
            if at == own {
                ROOTS.runtimes.store(next, Ordering::Release);
            }
            while let Some(node) = at.as_mut() {
                if node.next == own {
                    node.next = next;
                }
                at = node.next;
            }
            drop(Box::from_raw(own));
        }
    }
}

impl Entry {
    fn of(peer: &Peer) -> Entry {
        Entry {
            running: peer.roster.shown(),
            blocks: &raw const peer.blocks,
            counters: std::sync::Arc::as_ptr(&peer.counters),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::Location;
    use std::sync::Arc;

    /// The words of a value.
    fn words<T, const N: usize>(value: &T) -> [usize; N] {
        assert_eq!(size_of::<T>(), size_of::<[usize; N]>());
        // SAFETY: none of the types below has padding, and the sizes are equal (no contract).
        unsafe { std::mem::transmute_copy(value) }
    }

    #[test]
    fn location_is_as_the_script_reads_it() {
        let location = Location::caller();
        let [file, len, place] = words(location);
        let (line, column) = (place as u32, (place >> 32) as u32);
        assert_eq!((file, len), (location.file().as_ptr().addr(), location.file().len()));
        assert_eq!((line, column), (location.line(), location.column()));
    }

    #[test]
    fn shared_name_is_as_the_script_reads_it() {
        let name = Some(Arc::<str>::from("a name"));
        let [start, len] = words(&name);
        assert_eq!((start + 16, len), (name.as_ref().unwrap().as_ptr().addr(), 6));
        assert_eq!(words::<_, 2>(&None::<Arc<str>>)[0], 0);
    }

    #[test]
    fn known_text_is_as_the_script_reads_it() {
        let text = "src/main.rs:7:9";
        assert_eq!(words(&Some(text)), [text.as_ptr().addr(), 15]);
        assert_eq!(words::<_, 2>(&None::<&'static str>)[0], 0);
    }
}
