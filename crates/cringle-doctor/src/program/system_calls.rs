//! Finds the instructions by which code enters the kernel itself.
//!
//! On aarch64 each instruction is an aligned word. On x86-64 the two bytes of `syscall` are also
//! parts of other instructions, about one in 300 KiB of code. So the number of the call, which is
//! usually loaded into `eax` shortly before, is looked for, too; and one place alone does not
//! count. That finds the wrappers of liburing, libgomp and Rust's rustix, though not each place.

use super::elf::Machine;
use memchr::memmem;

/// `syscall`, and `svc #0`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SVC: [u8; 4] = 0xd400_0001_u32.to_le_bytes();
/// `mov eax, NUMBER` begins so.
const MOV_EAX: u8 = 0xb8;
/// The calls of Linux have smaller numbers.
const NUMBERS: u32 = 1024;
/// How far before the instruction the number is looked for.
const BEFORE_BYTES: usize = 32;
/// As many places and fewer are taken for other instructions.
const CHANCE: usize = 1;

/// Returns the number of places that were found in a section of code.
pub(super) fn count(code: &[u8], machine: Machine) -> usize {
    if machine == Machine::Aarch64 {
        return code.as_chunks().0.iter().filter(|word| **word == SVC).count();
    }
    let places = memmem::find_iter(code, &SYSCALL);
    let found = places.filter(|&at| loads_number(&code[at.saturating_sub(BEFORE_BYTES)..at]));
    Some(found.count()).filter(|count| *count > CHANCE).unwrap_or(0)
}

fn loads_number(code: &[u8]) -> bool {
    code.windows(5).any(|bytes| {
        let number = u32::from_le_bytes(bytes[1..].try_into().expect("four bytes"));
        bytes[0] == MOV_EAX && number < NUMBERS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_with_a_number_are_found() {
        let write = [0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3];
        assert_eq!(count(&write.repeat(3), Machine::X86_64), 3);
        assert_eq!(count(&write, Machine::X86_64), 0, "one place may be by chance");
        let other = [0xe9, 0x0f, 0x05, 0, 0];
        assert_eq!(count(&other.repeat(9), Machine::X86_64), 0);
        let aarch64 = [0xd280_0808_u32.to_le_bytes(), SVC].concat();
        assert_eq!(count(&aarch64, Machine::Aarch64), 1);
        assert_eq!(count(&[&[0], &aarch64[..]].concat(), Machine::Aarch64), 0);
    }
}
