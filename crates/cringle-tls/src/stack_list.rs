//! glibc's list of the threads whose stacks the program has allocated. A block is in it, so that
//! glibc finds it as it finds the thread-locals of any thread: `dlopen` initialises the variables
//! of a new module in each, and `dlclose` waits for each. In the child of a `fork`, glibc takes the
//! calling thread out of the list.

use super::glibc::{offset, symbol};
use cringle_sys::syscall;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

/// A place in a list of glibc's, or its head (`list_t`).
#[repr(C)]
pub(super) struct Link {
    next: *mut Link,
    previous: *mut Link,
}

/// See the module.
pub(super) struct StackList {
    head: NonNull<Link>,
    lock: NonNull<AtomicI32>,
}

impl StackList {
    /// Finds the list and its lock (glibc 2.34).
    pub(super) fn find() -> Result<StackList, String> {
        let of_loader = symbol(c"_rtld_global")?;
        let list = offset(c"_thread_db_rtld_global__dl_stack_user")
            .map_err(|_| "this glibc keeps the list of its threads to itself (before 2.34)")?;
        if offset(c"_thread_db_list_t_next")? != 0 || offset(c"_thread_db_list_t_prev")? != 8 {
            return Err("the lists of this glibc have another layout".into());
        }
        // SAFETY: I15. The offset leads to a field of this object.
        let head: NonNull<Link> = unsafe { of_loader.add(list) }.cast();
        // The lock follows the list, the list of cached stacks, their size, and the stack in
        // flight. `check` verifies that.
        // SAFETY: I15. The object is larger.
        let lock = unsafe { head.byte_add(4 * 8 + 2 * 8) }.cast();
        let found = StackList { head, lock };
        found.check()?;
        Ok(found)
    }

    /// Checks that what lies around the list is what the lock's place follows from.
    fn check(&self) -> Result<(), String> {
        // SAFETY: I15. Both lists are initialised before the program runs.
        let are_lists = unsafe {
            let cache = self.head.byte_add(2 * 8);
            [self.head, cache].into_iter().all(|head| {
                let Link { next, previous } = *head.as_ptr();
                !next.is_null()
                    && !previous.is_null()
                    && next.is_aligned()
                    && (*next).previous == head.as_ptr()
                    && (*previous).next == head.as_ptr()
            })
        };
        // SAFETY: I15. The object is larger, see `find`. Another thread may write these words.
        let state = unsafe { self.head.byte_add(5 * 8).cast::<usize>().read_volatile() };
        let lock = self.word().load(Ordering::Relaxed);
        if are_lists && state & !1 == 0 && (0..=2).contains(&lock) {
            return Ok(());
        }
        Err("the lock of its list of threads is not where it is expected".into())
    }

    fn word(&self) -> &AtomicI32 {
        // SAFETY: I15. The word lies in the loader's data, which exist as long as the process.
        unsafe { self.lock.as_ref() }
    }

    /// Whether another thread waits for the lock, which the caller has.
    pub(super) fn is_contended(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 2
    }

    /// Calls `f` with glibc's lock. `f` calls nothing of libc that may take it.
    pub(super) fn with_lock<R>(&self, f: impl FnOnce() -> R) -> R {
        let word = self.word();
        // glibc's protocol: 0 is free, 1 is taken, 2 is taken with a thread that may wait.
        if word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while word.swap(2, Ordering::Acquire) != 0 {
                futex(word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 2);
            }
        }
        let result = f();
        if word.swap(0, Ordering::Release) == 2 {
            futex(word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
        result
    }

    /// Takes a link out of the list that it is in, and adds it here.
    ///
    /// # Safety
    ///
    /// I14: as for [`add`](Self::add), and the link is in a list that no other thread uses.
    pub(super) unsafe fn move_here(&self, link: NonNull<Link>) {
        // SAFETY: I14, by the contract.
        unsafe {
            let Link { next, previous } = *link.as_ptr();
            (*next).previous = previous;
            (*previous).next = next;
            self.add(link);
        }
    }

    /// Adds a link at the front.
    ///
    /// # Safety
    ///
    /// I14: it stays in place, and in no other list, for ever.
    pub(super) unsafe fn add(&self, link: NonNull<Link>) {
        self.with_lock(|| {
            let (head, link) = (self.head.as_ptr(), link.as_ptr());
            // SAFETY: I14. The list is whole under the lock. A `fork` meanwhile finds the links
            // forwards whole: the link gets its own before the list refers to it.
            unsafe {
                let next = (*head).next;
                (*link).next = next;
                (*link).previous = head;
                (*next).previous = link;
                std::sync::atomic::fence(Ordering::Release);
                (*head).next = link;
            }
        });
    }
}

fn futex(word: &AtomicI32, operation: libc::c_int, value: libc::c_int) {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: I15. The word exists during the call.
    unsafe { syscall!(SYS_futex, word.as_ptr(), operation, value, no_limit) };
}
