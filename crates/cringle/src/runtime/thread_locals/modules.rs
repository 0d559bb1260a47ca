//! The initial values of the thread-locals of each loaded module.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

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

// SAFETY: I15. The images are constant data of modules that are loaded: `Modules::now` checks that
// none was unloaded since.
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
    /// The modules that are loaded now. `static_bytes` are the thread-locals with the descriptor.
    pub(super) fn now(static_bytes: usize) -> Arc<Modules> {
        static LAST: Mutex<Option<Arc<Modules>>> = Mutex::new(None);
        let changes = Changes::now();
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(modules) if modules.changes == changes => Arc::clone(modules),
            _ => Arc::clone(last.insert(Arc::new(Modules::list(static_bytes)))),
        }
    }

    /// Whether these are the modules that are loaded now.
    pub(super) fn are_current(&self) -> bool {
        self.changes == Changes::now()
    }

    fn list(static_bytes: usize) -> Modules {
        let mut listing = Listing {
            static_bytes,
            kept: [
                super::glibc::symbol(c"__errno_location"),
                super::glibc::symbol(c"_dl_allocate_tls"),
            ]
            .map(|symbol| symbol.map_or(0, |symbol| symbol.addr().get())),
            modules: Modules { all: Vec::new(), changes: Changes::default() },
        };
        // SAFETY: I15. The callback gets the value that it expects, and does not unwind.
        unsafe { libc::dl_iterate_phdr(Some(list_module), (&raw mut listing).cast()) };
        listing.modules
    }

    /// Gives the thread-locals of a block their initial values.
    ///
    /// # Safety
    ///
    /// I14: the block at this thread pointer is whole, no code runs on it, and the modules are
    /// [current](Self::are_current).
    pub(super) unsafe fn reset(&self, thread_pointer: usize) {
        for module in &self.all {
            let to = thread_pointer.wrapping_add_signed(module.offset) as *mut u8;
            // SAFETY: I14, by the contract. Each block has room for the static modules, at these
            // offsets.
            unsafe {
                std::ptr::copy_nonoverlapping(module.image, to, module.initialised);
                let rest = module.bytes - module.initialised;
                std::ptr::write_bytes(to.add(module.initialised), 0, rest);
            }
        }
    }
}

impl Changes {
    fn now() -> Changes {
        let mut changes = Changes::default();
        // SAFETY: I15. The callback gets the value that it expects, and does not unwind.
        unsafe { libc::dl_iterate_phdr(Some(read_changes), (&raw mut changes).cast()) };
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

struct Listing {
    static_bytes: usize,
    /// Addresses in the modules that are left out.
    kept: [usize; 2],
    modules: Modules,
}

unsafe extern "C" fn list_module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    listing: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `dl_iterate_phdr`, and the value that `Modules::list` passes.
    let (info, listing) = unsafe { (&*info, &mut *listing.cast::<Listing>()) };
    listing.modules.changes = Changes::of(info);
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
    let Some(template) = segments.iter().find(|segment| segment.p_type == libc::PT_TLS) else {
        return 0;
    };
    let address = info.dlpi_tls_data as usize;
    let offset = address.wrapping_sub(super::thread_pointer::get()) as isize;
    // On x86-64 they lie below the thread pointer, on aarch64 above.
    let distance = if cfg!(target_arch = "x86_64") { -offset } else { offset };
    let is_static = address != 0 && (1..=listing.static_bytes as isize).contains(&distance);
    if is_static && !listing.kept.into_iter().any(contains) {
        listing.modules.all.push(Module {
            offset,
            image: base.wrapping_add(template.p_vaddr as usize) as *const u8,
            initialised: template.p_filesz as usize,
            bytes: template.p_memsz as usize,
        });
    }
    0
}
