//! The memory of the process, as the kernel counts it.

/// Resident bytes, and bytes of page tables, which are not counted as resident.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident_bytes: u64,
    pub page_table_bytes: u64,
}

/// Returns the memory of this process. It reads `smaps_rollup`, which walks the page tables,
/// because the counters behind `VmRSS` are summed up only from time to time.
pub fn now() -> Memory {
    Memory {
        resident_bytes: kib("/proc/self/smaps_rollup", "Rss:") << 10,
        page_table_bytes: kib("/proc/self/status", "VmPTE:") << 10,
    }
}

fn kib(path: &str, key: &str) -> u64 {
    let text = std::fs::read_to_string(path).expect("Linux has this file");
    let line = text.lines().find(|line| line.starts_with(key));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).expect("a number of KiB")
}

impl std::ops::Sub for Memory {
    type Output = Memory;

    fn sub(self, before: Memory) -> Memory {
        Memory {
            resident_bytes: self.resident_bytes.saturating_sub(before.resident_bytes),
            page_table_bytes: self.page_table_bytes.saturating_sub(before.page_table_bytes),
        }
    }
}
