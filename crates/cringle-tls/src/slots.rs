//! The loader's table of the modules that have thread-locals (`dtv_slotinfo`).
//!
//! The loader changes an entry when it loads or unloads such a module, before it initialises the
//! module's variables in the blocks. It initialises them under the lock of its list of threads. So
//! code that compares the table under this lock, and then writes to a block, does not undo the
//! initialisation by the loader.

use super::glibc::{field, offset, symbol};
use std::ptr::NonNull;

/// The entries behind the last one in use that are compared. The loader uses the first free one.
const SPARE: usize = 4;
/// The number of the first module. The entry before it is not in use.
const FIRST: usize = 1;

/// See the module.
pub(super) struct SlotTable {
    /// The first part. It is never freed.
    first: NonNull<u8>,
    length: usize,
    next: usize,
    entries: usize,
    entry_bytes: usize,
    generation: usize,
    map: usize,
}

/// A copy of the table's entries, from [`FIRST`] on.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Slots(Vec<Slot>);

/// The generation in which the entry was changed, and the address of the module's link map, or 0.
type Slot = (usize, usize);

impl SlotTable {
    pub(super) fn find() -> Result<SlotTable, String> {
        let of_loader = symbol(c"_rtld_global")?;
        let list = offset(c"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list")?;
        // SAFETY: I15. The field is a pointer, which is set before the program runs.
        let first = unsafe { of_loader.byte_add(list).cast::<*mut u8>().read() };
        let entry_bits = field(c"_thread_db_dtv_slotinfo_list_slotinfo")?[0] as usize;
        Ok(SlotTable {
            first: NonNull::new(first).ok_or("the loader has no table of thread-locals")?,
            length: offset(c"_thread_db_dtv_slotinfo_list_len")?,
            next: offset(c"_thread_db_dtv_slotinfo_list_next")?,
            entries: offset(c"_thread_db_dtv_slotinfo_list_slotinfo")?,
            entry_bytes: entry_bits / 8,
            generation: offset(c"_thread_db_dtv_slotinfo_gen")?,
            map: offset(c"_thread_db_dtv_slotinfo_map")?,
        })
    }

    /// Returns a copy, unless the table has a second part.
    pub(super) fn copy(&self) -> Option<Slots> {
        if self.has_second_part() {
            return None;
        }
        let slots: Vec<_> = (FIRST..self.word(self.length)).map(|index| self.slot(index)).collect();
        let used = slots.iter().rposition(|(_, map)| *map != 0).map_or(0, |last| last + 1);
        Some(Slots(slots.into_iter().take(used + SPARE).collect()))
    }

    /// Whether the table is still as in the copy.
    #[inline]
    pub(super) fn is(&self, slots: &Slots) -> bool {
        let is_same = |(index, slot): (usize, &Slot)| self.slot(index) == *slot;
        !self.has_second_part() && (FIRST..).zip(&slots.0).all(is_same)
    }

    fn has_second_part(&self) -> bool {
        self.word(self.next) != 0
    }

    fn slot(&self, index: usize) -> Slot {
        let entry = self.entries + index * self.entry_bytes;
        (self.word(entry + self.generation), self.word(entry + self.map))
    }

    fn word(&self, offset: usize) -> usize {
        // SAFETY: I15. The offset leads to a word of the table, which other threads may write.
        unsafe { self.first.byte_add(offset).cast::<usize>().read_volatile() }
    }
}

impl Slots {
    /// The number of modules in it.
    pub(super) fn modules(&self) -> usize {
        self.0.iter().filter(|(_, map)| *map != 0).count()
    }
}
