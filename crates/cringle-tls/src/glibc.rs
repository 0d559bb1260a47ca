//! What glibc exports about its threads: functions, and offsets within the descriptor of a thread.
//!
//! The offsets are those for `libthread_db`, the library by which debuggers look at threads. So
//! they are exact for the glibc that is loaded, whatever its version.

use super::allocator::Allocator;
use super::libc_state::{self, CloseResolver};
use super::modules::{FindModule, LinkMap};
use super::slots::SlotTable;
use super::stack_list::StackList;
use super::{sanitizer, thread_pointer};
use cringle_sys::syscall;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, AtomicPtr, Ordering};

/// See the module.
pub(super) struct Glibc {
    /// Makes a block: the thread-locals of all loaded modules, and an empty descriptor.
    pub(super) allocate: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// Calls the destructors of C++'s and Rust's thread-locals. One may call `pthread_exit`, which
    /// unwinds.
    pub(super) call_destructors: unsafe extern "C-unwind" fn(),
    pub(super) close_resolver: CloseResolver,
    pub(super) link_map: LinkMap,
    pub(super) keys: Keys,
    pub(super) descriptor: Descriptor,
    pub(super) stack_list: StackList,
    pub(super) slots: SlotTable,
    /// `None` until [`find_resolver`](Self::find_resolver).
    pub(super) resolver: Option<Resolver>,
    /// Where the kernel's area for restartable sequences lies, from the thread pointer.
    pub(super) rseq: Option<isize>,
    /// Where the head of the list of destructors lies, from the thread pointer. 0 if it is not
    /// known.
    pub(super) destructor_list: AtomicIsize,
    /// Null if each block has its own. Never freed.
    pub(super) allocator: AtomicPtr<Allocator>,
}

/// Offsets within the descriptor of a thread (`struct pthread`).
pub(super) struct Descriptor {
    /// From the thread pointer to the descriptor.
    pub(super) from_thread_pointer: isize,
    pub(super) bytes: usize,
    pub(super) thread_id: usize,
    pub(super) cancel_state: usize,
    pub(super) list: usize,
    pub(super) key_values: usize,
    /// The table of the addresses of each module's thread-locals.
    pub(super) modules: usize,
    /// The head of the list of held robust mutexes.
    pub(super) robust_list: usize,
}

/// What the resolver of libc keeps of a thread.
pub(super) struct Resolver {
    /// Where the pointer to the state lies, from the thread pointer.
    pub(super) pointer: isize,
    /// Where the state lies in a descriptor.
    pub(super) state: usize,
}

/// The keys of `pthread_key_create`, and a thread's values for them.
pub(super) struct Keys {
    pub(super) all: NonNull<u8>,
    pub(super) key_bytes: usize,
    pub(super) key_sequence: usize,
    pub(super) key_destructor: usize,
    pub(super) value_bytes: usize,
    pub(super) value_sequence: usize,
    pub(super) value_data: usize,
    pub(super) values_in_block: usize,
    pub(super) blocks: usize,
}

// SAFETY: I15. Functions, offsets and addresses of glibc's own, which it guards by its own locks.
unsafe impl Send for Glibc {}
// SAFETY: as above.
unsafe impl Sync for Glibc {}

impl Glibc {
    /// Checks what is known without looking.
    pub(super) fn check_platform() -> Result<(), String> {
        if cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
            return Err("the program is not linked with glibc".into());
        }
        if cfg!(target_feature = "crt-static") {
            return Err("glibc is linked statically, and exports nothing".into());
        }
        sanitizer::check()?;
        thread_pointer::can_be_set()
    }

    /// Finds everything, or says what is missing. Called on a thread of its own.
    pub(super) fn find() -> Result<Glibc, String> {
        // SAFETY: I15. These functions have had these types since glibc 2.18.
        unsafe {
            Ok(Glibc {
                // First: only this says which version is needed.
                stack_list: StackList::find()?,
                allocate: std::mem::transmute::<
                    NonNull<u8>,
                    unsafe extern "C" fn(*mut c_void) -> *mut c_void,
                >(symbol(c"_dl_allocate_tls")?),
                call_destructors: std::mem::transmute::<NonNull<u8>, unsafe extern "C-unwind" fn()>(
                    symbol(c"__call_tls_dtors")?,
                ),
                close_resolver: libc_state::find_close_resolver()?,
                link_map: LinkMap {
                    find: std::mem::transmute::<NonNull<u8>, FindModule>(symbol(c"dladdr1")?),
                    tls_offset: offset(c"_thread_db_link_map_l_tls_offset")?,
                },
                keys: Keys::find()?,
                descriptor: Descriptor::find()?,
                slots: SlotTable::find()?,
                resolver: None,
                destructor_list: AtomicIsize::new(0),
                allocator: AtomicPtr::default(),
                rseq: symbol(c"__rseq_offset").ok().map(|offset| offset.cast::<isize>().read()),
            })
        }
    }
}

impl Glibc {
    /// What blocks share of the allocator, if they do.
    #[inline]
    pub(super) fn allocator(&self) -> Option<&'static Allocator> {
        if super::allocator::are_caches_own() {
            return None;
        }
        // SAFETY: I15. It is null, or was leaked.
        unsafe { self.allocator.load(Ordering::Acquire).as_ref() }
    }

    /// In a child of `fork`: tells the kernel that the area for restartable sequences of the thread
    /// with this thread pointer is no longer in use. The child does not have that thread, and glibc
    /// frees its stack, where the area lies. The kernel kills a process whose area is not mapped.
    pub(super) fn end_rseq(&self, own: usize) {
        const UNREGISTER: i32 = 1;
        /// What glibc registers (`RSEQ_SIG`).
        #[cfg(target_arch = "x86_64")]
        const SIGNATURE: u32 = 0x5305_3053;
        #[cfg(not(target_arch = "x86_64"))]
        const SIGNATURE: u32 = 0xd428_bc00;
        let Some(rseq) = self.rseq else { return };
        let area = own.wrapping_add_signed(rseq);
        // 32 bytes, or as many as the kernel's fields take (33 on Linux 7.0). Another length than
        // that which was registered is refused.
        for bytes in 32..=256 {
            // SAFETY: I15. The kernel only forgets the address.
            if unsafe { syscall!(SYS_rseq, area, bytes, UNREGISTER, SIGNATURE) } == 0 {
                return;
            }
        }
    }

    /// Finds the state of the resolver in the descriptor of the calling thread, which is not the
    /// main thread: that has it elsewhere.
    pub(super) fn find_resolver(&self) -> Result<Resolver, String> {
        let pointer = symbol(c"__resp")?;
        // SAFETY: I15. The thread-local is a pointer. A thread sets it when it starts.
        let state = unsafe { pointer.cast::<usize>().read() };
        // SAFETY: the call has no contract.
        let state = state.wrapping_sub(unsafe { libc::pthread_self() } as usize);
        if state >= self.descriptor.bytes {
            return Err("a thread's state of the resolver is not in its descriptor".into());
        }
        Ok(Resolver { pointer: from_thread_pointer(pointer), state })
    }
}

impl Descriptor {
    fn find() -> Result<Descriptor, String> {
        // SAFETY: the call has no contract.
        let descriptor = unsafe { libc::pthread_self() } as usize;
        let bytes = number(c"_thread_db_sizeof_pthread")?;
        Ok(Descriptor {
            from_thread_pointer: descriptor.wrapping_sub(thread_pointer::get()) as isize,
            bytes,
            thread_id: offset(c"_thread_db_pthread_tid")?,
            cancel_state: offset(c"_thread_db_pthread_cancelhandling")?,
            list: offset(c"_thread_db_pthread_list")?,
            key_values: offset(c"_thread_db_pthread_specific")?,
            modules: offset(c"_thread_db_pthread_dtvp")?,
            // SAFETY: I15. The check runs on a thread of its own, which holds no mutex.
            robust_list: unsafe { robust_list(descriptor, bytes)? },
        })
    }
}

impl Keys {
    fn find() -> Result<Keys, String> {
        Ok(Keys {
            all: symbol(c"__pthread_keys")?,
            key_bytes: number(c"_thread_db_sizeof_pthread_key_struct")?,
            key_sequence: offset(c"_thread_db_pthread_key_struct_seq")?,
            key_destructor: offset(c"_thread_db_pthread_key_struct_destr")?,
            value_bytes: number(c"_thread_db_sizeof_pthread_key_data")?,
            value_sequence: offset(c"_thread_db_pthread_key_data_seq")?,
            value_data: offset(c"_thread_db_pthread_key_data_data")?,
            values_in_block: count(c"_thread_db_pthread_key_data_level2_data")?,
            blocks: pointers(c"_thread_db_pthread_specific")?,
        })
    }
}

/// Returns the address of a symbol; of a thread-local, the address of the calling thread's.
pub(super) fn symbol(name: &CStr) -> Result<NonNull<u8>, String> {
    // SAFETY: I15. `name` ends with a zero byte.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    NonNull::new(address.cast())
        .ok_or_else(|| format!("this libc has no {}", name.to_string_lossy()))
}

fn from_thread_pointer(address: NonNull<u8>) -> isize {
    address.addr().get().wrapping_sub(thread_pointer::get()) as isize
}

/// A size that glibc exports.
fn number(name: &CStr) -> Result<usize, String> {
    // SAFETY: I15. Glibc exports the sizes as `u32`.
    Ok(unsafe { symbol(name)?.cast::<u32>().read() } as usize)
}

/// A field that glibc exports: the bits of an element, the number of elements, the offset.
pub(super) fn field(name: &CStr) -> Result<[u32; 3], String> {
    // SAFETY: I15. Glibc exports the fields as three `u32`.
    Ok(unsafe { symbol(name)?.cast::<[u32; 3]>().read() })
}

pub(super) fn offset(name: &CStr) -> Result<usize, String> {
    Ok(field(name)?[2] as usize)
}

fn count(name: &CStr) -> Result<usize, String> {
    Ok(field(name)?[1] as usize)
}

/// How many pointers fit in a field. Glibc names an array of them as one element, or element-wise.
fn pointers(name: &CStr) -> Result<usize, String> {
    let [bits, elements, _] = field(name)?;
    Ok((bits as usize * elements as usize) / usize::BITS as usize)
}

/// Where a descriptor has the head of the list of held robust mutexes. Empty, it refers to itself,
/// and the word before it refers to it, too: nothing else in a descriptor does.
///
/// # Safety
///
/// I15: the calling thread holds no robust mutex, and this is its descriptor.
unsafe fn robust_list(descriptor: usize, bytes: usize) -> Result<usize, String> {
    let offsets = (size_of::<usize>()..bytes).step_by(size_of::<usize>());
    // SAFETY: I15, by the contract.
    let word = |offset| unsafe { ((descriptor + offset) as *const usize).read_volatile() };
    let is_head = |&offset: &usize| {
        let address = descriptor + offset;
        word(offset) == address && word(offset - size_of::<usize>()) == address
    };
    let mut heads = offsets.filter(is_head);
    match (heads.next(), heads.next()) {
        (Some(head), None) => Ok(head),
        _ => Err("a thread's list of robust mutexes is not found in its descriptor".into()),
    }
}
