//! The initial values of the thread-locals of each loaded module.

use super::glibc::{Glibc, symbol};
use super::slots::Slots;
use cringle_sys::fork::Section;
use cringle_sys::lock::Mutex;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

/// A module whose thread-locals lie in one piece with the descriptor, in every block.
pub(super) struct Module {
    /// From the thread pointer.
    offset: isize,
    image: Image,
    bytes: usize,
}

/// The initial values of a module's thread-locals. Those behind it are zero.
struct Image {
    /// Constant data of the module: once it is relocated, and while it is loaded.
    address: usize,
    copy: Box<[u8]>,
}

/// The modules but libc and the loader, whose state a block keeps for its next fiber.
pub(super) struct Modules {
    all: Vec<Module>,
    changes: Changes,
    /// The loader's table, if each change of the modules above changes it. While a module has its
    /// thread-locals apart from the blocks, they may get a place in all without a change there.
    slots: Option<Slots>,
}

/// The numbers of modules that were loaded and unloaded so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Changes {
    loaded: u64,
    unloaded: u64,
}

impl Modules {
    /// The modules that are loaded now.
    pub(super) fn now(glibc: &Glibc) -> Arc<Modules> {
        static LAST: Mutex<Option<Arc<Modules>>> = Mutex::new(None);
        let changes = Changes::now();
        let last = || LAST.lock();
        {
            let _section = Section::enter();
            let is_current =
                |modules: &&Arc<Modules>| modules.changes == changes && modules.has_table(glibc);
            if let Some(modules) = last().as_ref().filter(is_current) {
                return Arc::clone(modules);
            }
        }
        let modules = Arc::new(Modules::list(glibc));
        let _section = Section::enter();
        last().replace(Arc::clone(&modules));
        modules
    }

    /// Whether the loader's table is still as it was listed, if it counts.
    fn has_table(&self, glibc: &Glibc) -> bool {
        self.slots.as_ref().is_none_or(|slots| glibc.slots.is(slots))
    }

    /// Whether the thread-locals of each module lie in every block, none apart.
    #[inline]
    pub(super) fn lie_in_blocks(&self) -> bool {
        self.slots.is_some()
    }

    fn list(glibc: &Glibc) -> Modules {
        loop {
            let slots = glibc.slots.copy();
            let mut listing = Listing::new();
            // SAFETY: I15. The callback gets the value that it expects.
            unsafe { iterate(list_module, &mut listing) };
            // Not within the callback: the loader takes its locks in the other order elsewhere.
            let link_map = &glibc.link_map;
            let placed = listing.found.into_iter().filter_map(|found| found.placed(link_map));
            let all: Vec<_> = placed.collect();

            let slots = slots.filter(|slots| slots.modules() == all.len() + listing.left_out.len());
            let modules = Modules { all, changes: listing.changes, slots };
            if modules.changes == Changes::now() && modules.has_table(glibc) {
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
    pub(super) unsafe fn reset(&self, glibc: &Glibc, thread_pointer: usize) -> bool {
        if let Some(slots) = &self.slots {
            return glibc.stack_list.with_lock(|| {
                let is_current = glibc.slots.is(slots);
                if is_current {
                    // The modules may be unloaded meanwhile, but not yet replaced by others: the
                    // loader initialises the variables of a module under this lock, after it has
                    // relocated it and then changed the table. So the copies are right, too.
                    // SAFETY: I14, by the contract.
                    unsafe { self.write(thread_pointer, |image| image.copy.as_ptr()) };
                }
                is_current
            });
        }
        let mut reset = Reset { modules: self, thread_pointer, is_done: false };
        // Within the callback no module is unloaded. One that is loaded meanwhile is initialised in
        // all blocks, afterwards.
        // SAFETY: I15. The callback gets the value that it expects.
        unsafe { iterate(reset_block, &mut reset) };
        reset.is_done
    }

    /// Copies what `from` returns of each image.
    ///
    /// # Safety
    ///
    /// I14: as for [`reset`](Self::reset), and these modules have their places in the blocks.
    unsafe fn write(&self, thread_pointer: usize, from: impl Fn(&Image) -> *const u8) {
        for Module { offset, image, bytes } in &self.all {
            let to = thread_pointer.wrapping_add_signed(*offset) as *mut u8;
            let length = image.copy.len();
            // SAFETY: I14, by the contract. Each block has room for these modules at these offsets.
            unsafe {
                std::ptr::copy_nonoverlapping(from(image), to, length);
                std::ptr::write_bytes(to.add(length), 0, bytes - length);
            }
        }
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
    if reset.is_done {
        // Not the copies: they may have been made before the module was relocated.
        // SAFETY: I14, by the contract of `Modules::reset`. The modules are loaded.
        unsafe { reset.modules.write(reset.thread_pointer, |image| image.address as *const u8) };
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

/// Reads the counts at the first module; each module reports the same ones.
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
    /// From its first segment to the end of its last.
    extent: Range<usize>,
    image: Image,
    bytes: usize,
}

/// Where libc lies, from its first segment to the end of its last, and its thread-locals.
pub(super) struct LibcPlace {
    pub(super) extent: Range<usize>,
    /// From the thread pointer.
    offset: isize,
    bytes: usize,
}

impl LibcPlace {
    /// Reads all words of libc's thread-locals in a block, each with its place from the thread
    /// pointer.
    ///
    /// # Safety
    ///
    /// I15: there is a block at this thread pointer, on which no other thread's code runs.
    pub(super) unsafe fn words(&self, thread_pointer: usize) -> Vec<(isize, usize)> {
        let offsets = self.offset..self.offset + self.bytes as isize;
        let read = |offset| {
            let word = thread_pointer.wrapping_add_signed(offset) as *const usize;
            // SAFETY: I15. libc's thread-locals lie there in each block.
            (offset, unsafe { word.read_volatile() })
        };
        offsets.step_by(size_of::<usize>()).map(read).collect()
    }
}

struct Listing {
    /// Addresses in the modules that are left out.
    kept: [usize; 2],
    left_out: Vec<Found>,
    found: Vec<Found>,
    changes: Changes,
}

impl Listing {
    fn new() -> Listing {
        let kept = [symbol(c"__errno_location"), symbol(c"_dl_allocate_tls")];
        let kept = kept.map(|symbol| symbol.map_or(0, |symbol| symbol.addr().get()));
        Listing { kept, left_out: Vec::new(), found: Vec::new(), changes: Changes::default() }
    }
}

impl Found {
    /// The module, if its thread-locals lie in every block.
    fn placed(self, link_map: &LinkMap) -> Option<Module> {
        let offset = link_map.tls_offset_of(self.extent.start)?;
        // glibc's marks: none, and apart from the block.
        if matches!(offset as isize, -2..=0) {
            return None;
        }
        Some(Module {
            // On x86-64 they lie below the thread pointer, on aarch64 above.
            offset: if cfg!(target_arch = "x86_64") { -(offset as isize) } else { offset as isize },
            image: self.image,
            bytes: self.bytes,
        })
    }
}

impl LinkMap {
    /// Where libc and its own thread-locals lie.
    pub(super) fn place_of_libc(&self) -> Option<LibcPlace> {
        let address = symbol(c"__errno_location").ok()?.addr().get();
        let mut listing = Listing::new();
        // SAFETY: I15. The callback gets the value that it expects.
        unsafe { iterate(list_module, &mut listing) };
        let mut left_out = listing.left_out.into_iter();
        let libc = left_out.find(|found| found.extent.contains(&address))?;
        let extent = libc.extent.clone();
        let Module { offset, bytes, .. } = libc.placed(self)?;
        Some(LibcPlace { extent, offset, bytes })
    }

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
    let loaded = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
    let extents = loaded.map(|segment| {
        let begin = base.wrapping_add(segment.p_vaddr as usize);
        begin..begin.wrapping_add(segment.p_memsz as usize)
    });
    let extent = extents.reduce(|all, next| all.start.min(next.start)..all.end.max(next.end));
    if let Some(template) = segments.iter().find(|segment| segment.p_type == libc::PT_TLS) {
        let image = base.wrapping_add(template.p_vaddr as usize);
        let length = template.p_filesz as usize;
        // SAFETY: I15. The initial values, which no code changes after the module is relocated. A
        // module that is not relocated is not in the loader's table yet.
        let copy = unsafe { std::slice::from_raw_parts(image as *const u8, length) }.into();
        let image = Image { address: image, copy };
        let bytes = template.p_memsz as usize;
        let extent = extent.unwrap_or_default();
        let is_kept = listing.kept.iter().any(|address| extent.contains(address));
        let list = if is_kept { &mut listing.left_out } else { &mut listing.found };
        list.push(Found { extent, image, bytes });
    }
    0
}

#[cfg(all(test, target_env = "gnu", not(cringle_sanitizer)))]
mod tests {
    use super::*;

    /// Else each end of a fiber takes the loader's lock.
    #[test]
    fn changes_of_a_programs_modules_are_seen_in_the_table() {
        assert!(Modules::now(super::super::glibc().unwrap()).slots.is_some());
    }

    /// A loader whose module at an address has its offset there, too.
    unsafe extern "C" fn find_offset(
        address: *const c_void,
        _info: *mut libc::Dl_info,
        offset: *mut *mut c_void,
        _flags: c_int,
    ) -> c_int {
        // SAFETY: the contract of `dladdr1`: the place is valid.
        unsafe { *offset = address.cast_mut() };
        1
    }

    #[test]
    fn thread_locals_apart_from_the_block_have_no_place() {
        let link_map = LinkMap { find: find_offset, tls_offset: 0 };
        let is_placed = |offset: isize| {
            let image = Image { address: 0, copy: Box::default() };
            let address = (&raw const offset).expose_provenance();
            let extent = address..address + 1;
            Found { extent, image, bytes: 8 }.placed(&link_map).is_some()
        };
        assert_eq!([-2, -1, 0].map(is_placed), [false; 3]);
        assert_eq!([-3, 1, 64].map(is_placed), [true; 3]);
    }
}
