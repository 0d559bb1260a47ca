//! The memory of a server, as the kernel reports it.

use std::fs;
use std::io;

/// Amounts of memory, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// The resident memory of the processes.
    pub(super) resident: f64,
    /// Their page tables.
    pub(super) tables: f64,
    /// The objects of the kernel: the sockets of both ends, files, and those of all other programs.
    pub(super) slab: f64,
}

impl Memory {
    pub(super) fn of(ids: &[u32]) -> io::Result<Memory> {
        let mut memory = Memory { slab: field("/proc/meminfo", "Slab:")?, ..Memory::default() };
        for id in ids {
            let path = format!("/proc/{id}/status");
            memory.resident += field(&path, "VmRSS:")?;
            memory.tables += field(&path, "VmPTE:")?;
        }
        Ok(memory)
    }

    pub(super) fn since(self, before: Memory) -> Memory {
        Memory {
            resident: self.resident - before.resident,
            tables: self.tables - before.tables,
            slab: self.slab - before.slab,
        }
    }
}

/// Returns the value of a line like `VmRSS:  1234 kB`, in bytes.
fn field(path: &str, name: &str) -> io::Result<f64> {
    let explain = |text: String| io::Error::other(format!("{path}: {text}"));
    let text = fs::read_to_string(path).map_err(|error| explain(error.to_string()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| explain(format!("{name} is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_is_resident() {
        let me = [std::process::id()];
        let before = Memory::of(&me).unwrap();
        let touched = std::hint::black_box(vec![1u8; 32 << 20]);
        let more = Memory::of(&me).unwrap().since(before);
        assert!(more.resident > 0.9 * touched.len() as f64, "{more:?}");
        assert!(before.tables > 0.0 && before.slab > 0.0);
    }
}
