//! The initial values of the thread-locals of each loaded module.

use super::fork_guard::Section;
use super::glibc::symbol;
use crate::sys::lock::Mutex;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// A module whose thread-locals lie in one piece with the descriptor, in every block.
pub(super) struct Module {
    /// From the thread pointer.
    offset: isize,
    image: *const u8,
    /// The bytes that the image initialises. The rest is zero.
    initialised: usize,
    bytes: usize,
}

/// The modules but libc and the loader, whose state a block keeps for its next fiber.
pub(super) struct Modules {
    all: Vec<Module>,
    changes: Changes,
}

// SAFETY: I15. The images are constant data of modules that are loaded: `Modules::reset` checks
// that none was unloaded since.
unsafe impl Send for Modules {}
// SAFETY: as above.
unsafe impl Sync for Modules {}

/// The numbers of modules that were loaded and unloaded so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Changes {
    loaded: u64,
    unloaded: u64,
}

impl Modules {
    /// The modules that are loaded now.
    pub(super) fn now(link_map: &LinkMap) -> Arc<Modules> {
        static LAST: Mutex<Option<Arc<Modules>>> = Mutex::new(None);
        let changes = Changes::now();
        let last = || LAST.lock();
        {
            let _section = Section::enter();
            if let Some(modules) = last().as_ref().filter(|modules| modules.changes == changes) {
                return Arc::clone(modules);
            }
        }
        let modules = Arc::new(Modules::list(link_map));
        let _section = Section::enter();
        last().replace(Arc::clone(&modules));
        modules
    }

    /// Whether these are the modules that are loaded now.
    fn are_current(&self) -> bool {
        self.changes == Changes::now()
    }

    fn list(link_map: &LinkMap) -> Modules {
        loop {
            let mut listing = Listing::new();
            // SAFETY: I15. The callback gets the value that it expects.
            unsafe { iterate(list_module, &mut listing) };
            // Not within the callback: the loader takes its locks in the other order elsewhere.
            let all = listing.found.iter().filter_map(|found| found.placed(link_map)).collect();
            let modules = Modules { all, changes: listing.changes };
            if modules.are_current() {
                return modules;
            }
        }
    }

    /// Gives the thread-locals of a block their initial values. Returns false, and does nothing, if
    /// modules were loaded or unloaded since these were listed.
    ///
    /// # Safety
    ///
    /// I14: the block at this thread pointer is whole, and no code runs on it.
    pub(super) unsafe fn reset(&self, thread_pointer: usize) -> bool {
        let mut reset = Reset { modules: self, thread_pointer, is_done: false };
        // Within the callback no module is unloaded. One that is loaded meanwhile is initialised in
        // all blocks, afterwards.
        // SAFETY: I15. The callback gets the value that it expects.
        unsafe { iterate(reset_block, &mut reset) };
        reset.is_done
    }
}

type ModuleCallback = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// Calls `callback` for the loaded modules, until it returns 1.
///
/// # Safety
///
/// I15: the callback does not unwind, and expects a pointer to a `T`.
unsafe fn iterate<T>(callback: ModuleCallback, value: &mut T) {
    let _section = Section::enter();
    // SAFETY: I15, by the contract.
    unsafe { libc::dl_iterate_phdr(Some(callback), std::ptr::from_mut(value).cast()) };
}

struct Reset<'a> {
    modules: &'a Modules,
    thread_pointer: usize,
    is_done: bool,
}

/// Is called for the first module, and stops there.
unsafe extern "C" fn reset_block(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    reset: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `dl_iterate_phdr`, and the value that `Modules::reset` passes.
    let (info, reset) = unsafe { (&*info, &mut *reset.cast::<Reset<'_>>()) };
    reset.is_done = Changes::of(info) == reset.modules.changes;
    for module in reset.modules.all.iter().filter(|_| reset.is_done) {
        let to = reset.thread_pointer.wrapping_add_signed(module.offset) as *mut u8;
        // SAFETY: I14, by the contract of `Modules::reset`. Each block has room for these modules,
        // at these offsets, and they are loaded.
        unsafe {
            std::ptr::copy_nonoverlapping(module.image, to, module.initialised);
            std::ptr::write_bytes(to.add(module.initialised), 0, module.bytes - module.initialised);
        }
    }
    1
}

impl Changes {
    fn now() -> Changes {
        let mut changes = Changes::default();
        // SAFETY: I15. The callback gets the value that it expects.
        unsafe { iterate(read_changes, &mut changes) };
        changes
    }

    fn of(info: &libc::dl_phdr_info) -> Changes {
        Changes { loaded: info.dlpi_adds, unloaded: info.dlpi_subs }
    }
}

/// Reads the counts of the first module, which are those of all.
unsafe extern "C" fn read_changes(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    changes: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `dl_iterate_phdr`, and the value that `Changes::now` passes.
    unsafe { *changes.cast() = Changes::of(&*info) };
    1
}

/// `dladdr1`, which musl does not have.
pub(super) type FindModule = unsafe extern "C" fn(
    address: *const c_void,
    info: *mut libc::Dl_info,
    extra: *mut *mut c_void,
    flags: c_int,
) -> c_int;

/// The loader's description of a module (`struct link_map`).
pub(super) struct LinkMap {
    /// Finds it by an address in the module.
    pub(super) find: FindModule,
    /// How far its thread-locals are from the thread pointer.
    pub(super) tls_offset: usize,
}

/// A module with thread-locals, as the loader lists it.
struct Found {
    image: usize,
    initialised: usize,
    bytes: usize,
}

struct Listing {
    /// Addresses in the modules that are left out.
    kept: [usize; 2],
    found: Vec<Found>,
    changes: Changes,
}

impl Listing {
    fn new() -> Listing {
        let kept = [symbol(c"__errno_location"), symbol(c"_dl_allocate_tls")];
        let kept = kept.map(|symbol| symbol.map_or(0, |symbol| symbol.addr().get()));
        Listing { kept, found: Vec::new(), changes: Changes::default() }
    }
}

impl Found {
    /// The module, if its thread-locals lie in every block.
    fn placed(&self, link_map: &LinkMap) -> Option<Module> {
        let offset = link_map.tls_offset_of(self.image)?;
        // glibc's marks: none, and apart from the block.
        if matches!(offset as isize, -2..=0) {
            return None;
        }
        Some(Module {
            // On x86-64 they lie below the thread pointer, on aarch64 above.
            offset: if cfg!(target_arch = "x86_64") { -(offset as isize) } else { offset as isize },
            image: self.image as *const u8,
            initialised: self.initialised,
            bytes: self.bytes,
        })
    }
}

impl LinkMap {
    /// The offset of the thread-locals of the module in which this address lies.
    fn tls_offset_of(&self, address: usize) -> Option<usize> {
        const RTLD_DL_LINKMAP: c_int = 2;
        let mut map = std::ptr::null_mut::<c_void>();
        // SAFETY: I15. All-zero is valid. The call writes both values, or fails.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let find = self.find;
            let found = find(address as *const c_void, &mut info, &mut map, RTLD_DL_LINKMAP);
            if found == 0 || map.is_null() {
                return None;
            }
            Some(map.byte_add(self.tls_offset).cast::<usize>().read_volatile())
        }
    }
}

unsafe extern "C" fn list_module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    listing: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `dl_iterate_phdr`, and the value that `Modules::list` passes.
    let (info, listing) = unsafe { (&*info, &mut *listing.cast::<Listing>()) };
    listing.changes = Changes::of(info);
    // SAFETY: I15. The loader's table of this module's segments.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let contains = |address: usize| {
        segments.iter().any(|segment| {
            let begin = base.wrapping_add(segment.p_vaddr as usize);
            segment.p_type == libc::PT_LOAD
                && (begin..begin.wrapping_add(segment.p_memsz as usize)).contains(&address)
        })
    };
    if let Some(template) = segments.iter().find(|segment| segment.p_type == libc::PT_TLS)
        && !listing.kept.into_iter().any(contains)
    {
        listing.found.push(Found {
            image: base.wrapping_add(template.p_vaddr as usize),
            initialised: template.p_filesz as usize,
            bytes: template.p_memsz as usize,
        });
    }
    0
}
