//! System calls that an object makes by instructions of its own, which no hook sees.
//!
//! This is a heuristic. On x86-64 the instruction is two bytes long, and those bytes also occur
//! inside other instructions and in tables of constants: a place counts if the code before it,
//! decoded from several starts, mostly reaches it by ordinary instructions. The number of the call
//! is the constant that this code puts into the number's register; if it is no constant, the number
//! is unknown.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use serde::Serialize;
use std::collections::BTreeMap;

/// Inline system calls of one number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Inline {
    /// The name of a call that may wait; `null` if the number is not a constant.
    pub call: Option<&'static str>,
    pub places: usize,
    /// The functions that contain the instruction, or their crates; empty without symbols.
    pub functions: Vec<String>,
}

/// The architectures whose instructions are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
}

/// The number of a system call that an instruction makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Constant(u32),
    Unknown,
}

/// Calls that may wait, with their numbers on x86-64 and aarch64.
const WAITING: [(&str, u32, u32); 51] = [
    ("read", 0, 63),
    ("write", 1, 64),
    ("open", 2, NONE),
    ("poll", 7, NONE),
    ("pread64", 17, 67),
    ("pwrite64", 18, 68),
    ("readv", 19, 65),
    ("writev", 20, 66),
    ("select", 23, NONE),
    ("pause", 34, NONE),
    ("nanosleep", 35, 101),
    ("sendfile", 40, 71),
    ("connect", 42, 203),
    ("accept", 43, 202),
    ("sendto", 44, 206),
    ("recvfrom", 45, 207),
    ("sendmsg", 46, 211),
    ("recvmsg", 47, 212),
    ("wait4", 61, 260),
    ("semop", 65, 193),
    ("msgsnd", 69, 189),
    ("msgrcv", 70, 188),
    ("flock", 73, 32),
    ("fsync", 74, 82),
    ("fdatasync", 75, 83),
    ("rt_sigtimedwait", 128, 137),
    ("rt_sigsuspend", 130, 133),
    ("futex", 202, 98),
    ("io_getevents", 208, 4),
    ("io_submit", 209, 2),
    ("semtimedop", 220, 192),
    ("clock_nanosleep", 230, 115),
    ("epoll_wait", 232, NONE),
    ("mq_timedsend", 242, 182),
    ("mq_timedreceive", 243, 183),
    ("waitid", 247, 95),
    ("openat", 257, 56),
    ("pselect6", 270, 72),
    ("ppoll", 271, 73),
    ("splice", 275, 76),
    ("tee", 276, 77),
    ("vmsplice", 278, 75),
    ("epoll_pwait", 281, 22),
    ("accept4", 288, 242),
    ("preadv", 295, 69),
    ("pwritev", 296, 70),
    ("recvmmsg", 299, 243),
    ("sendmmsg", 307, 269),
    ("io_uring_enter", 426, 426),
    ("epoll_pwait2", 441, 441),
    ("futex_wait", 455, 455),
];
/// The architecture does not have the call.
const NONE: u32 = u32::MAX;

fn name_of(machine: Machine, number: u32) -> Option<&'static str> {
    let of = |call: &&(&str, u32, u32)| match machine {
        Machine::X86_64 => call.1 == number,
        Machine::Aarch64 => call.2 == number,
    };
    WAITING.iter().find(of).map(|call| call.0)
}

/// A function's address, size and name.
pub(super) struct Function {
    pub address: u64,
    pub size: u64,
    pub name: String,
}

/// Finds the calls that may wait in a section of code. `functions` is sorted by address.
pub(super) fn find(
    machine: Machine,
    code: &[u8],
    address: u64,
    functions: &[Function],
    found: &mut BTreeMap<Option<&'static str>, Inline>,
) {
    let places = match machine {
        Machine::X86_64 => x86_64(code),
        Machine::Aarch64 => aarch64(code),
    };
    for (offset, number) in places {
        let call = match number {
            Number::Unknown => None,
            Number::Constant(number) => match name_of(machine, number) {
                Some(name) => Some(name),
                // A call that does not wait.
                None => continue,
            },
        };
        let owner = owner(functions, address + offset as u64);
        if owner.is_some_and(is_cringles_own) {
            continue;
        }
        let empty = || Inline { call, places: 0, functions: Vec::new() };
        let entry = found.entry(call).or_insert_with(empty);
        entry.places += 1;
        if let Some(name) = owner.map(short)
            && !entry.functions.contains(&name)
        {
            entry.functions.push(name);
        }
    }
}

fn owner(functions: &[Function], address: u64) -> Option<&str> {
    let after = functions.partition_point(|function| function.address <= address);
    let function = &functions[after.checked_sub(1)?];
    (address < function.address + function.size).then_some(&*function.name)
}

/// The library's own calls are never hooked, and do not block a worker that has other fibers.
fn is_cringles_own(function: &str) -> bool {
    crate_of(function).is_some_and(|name| name == "cringle" || name.starts_with("cringle_"))
}

/// A function's name, or the crate of a Rust function.
fn short(function: &str) -> String {
    match crate_of(function) {
        Some(name) => format!("crate {name}"),
        None => function.to_owned(),
    }
}

/// The first crate that a demangled path names.
fn crate_of(function: &str) -> Option<&str> {
    let (start, _) = function.split_once("::")?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let from = start.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    Some(&start[from..]).filter(|name| !name.is_empty())
}

/// How far before a place decoding starts, from how many starts, and how many must reach it.
const BEFORE: usize = 160;
/// The last bytes before a place, in which each instruction must be ordinary.
const ORDINARY_BYTES: usize = 64;
const STARTS: usize = 9;
const MAJORITY: usize = 5;

fn x86_64(code: &[u8]) -> Vec<(usize, Number)> {
    let candidates = memchr::memmem::find_iter(code, b"\x0f\x05");
    candidates.filter_map(|at| Some((at, x86_64_number(code, at)?))).collect()
}

/// Returns the number of the call at `at`, or `None` if those bytes are no instruction.
fn x86_64_number(code: &[u8], at: usize) -> Option<Number> {
    let first = at.saturating_sub(BEFORE);
    let starts = (first..at.min(first + STARTS)).chain((at == 0).then_some(0));
    let runs: Vec<_> = starts.map(|start| run_up(code, start, at)).collect();
    let reached: Vec<_> = runs.iter().flatten().collect();
    // Near the start of a section there are fewer starts.
    if reached.len() < MAJORITY.min(runs.len().div_ceil(2)) {
        return None;
    }
    let constant = reached.iter().find(|number| matches!(number, Number::Constant(_)));
    Some(constant.map_or(Number::Unknown, |number| **number))
}

/// Decodes from `start`. Returns the number in the register if the code reaches `at`.
fn run_up(code: &[u8], start: usize, at: usize) -> Option<Number> {
    let options = DecoderOptions::NONE;
    let mut decoder = Decoder::with_ip(64, &code[start..at + 2], start as u64, options);
    let mut constants = Constants::default();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.ip() as usize {
            ip if ip == at && instruction.code() == Code::Syscall => {
                return Some(constants.0[RAX].map_or(Number::Unknown, Number::Constant));
            }
            ip if ip >= at => return None,
            ip if ip + ORDINARY_BYTES > at && !is_ordinary(&instruction) => return None,
            _ => constants.after(&instruction),
        }
    }
    None
}

/// Whether compilers put this instruction before a system call.
#[rustfmt::skip]
fn is_ordinary(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let plain = matches!(
        instruction.mnemonic(),
        Mov | Lea | Xor | Push | Pop | Add | Sub | And | Or | Test | Cmp | Jmp | Call | Ret | Nop
            | Endbr64 | Movsxd | Movzx | Movsx | Shl | Shr | Sar | Neg | Not | Inc | Dec | Sbb | Adc
            | Imul | Bt | Int3 | Ud2 | Cdqe | Cqo | Cdq | Leave | Xchg | Bswap | Syscall | Movaps
            | Movups | Movdqa | Movdqu | Movq | Movd | Pxor | Xorps | Movapd | Punpcklqdq | Movhps
            | Pinsrq | Pshufd
    );
    let segment = instruction.segment_prefix();
    let usual_segment = !matches!(segment, Register::GS | Register::CS | Register::ES);
    usual_segment && (plain || is_conditional(instruction))
}

/// Whether this is a conditional jump, move or set.
fn is_conditional(instruction: &Instruction) -> bool {
    let name = format!("{:?}", instruction.mnemonic());
    ["J", "Cmov", "Set"].iter().any(|start| name.starts_with(start))
}

/// The constants that are known to be in the sixteen registers.
#[derive(Default)]
struct Constants([Option<u32>; 16]);

const RAX: usize = 0;

impl Constants {
    /// The place of a whole register or of its lower half.
    fn index(register: Register) -> Option<usize> {
        [Register::EAX, Register::RAX].iter().find_map(|first| {
            let index = (register as usize).checked_sub(*first as usize)?;
            (index < 16).then_some(index)
        })
    }

    /// Follows an instruction.
    fn after(&mut self, instruction: &Instruction) {
        let mnemonic = instruction.mnemonic();
        if matches!(mnemonic, Mnemonic::Call | Mnemonic::Ret | Mnemonic::Syscall) {
            // Their result, and what the callee may change; the number is rarely kept elsewhere.
            self.0[RAX] = None;
            return;
        }
        if instruction.op0_kind() != OpKind::Register
            || matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
        {
            return;
        }
        let Some(target) = Constants::index(instruction.op0_register()) else { return };
        self.0[target] = self.written(instruction);
    }

    /// The constant that an instruction writes into its register.
    fn written(&self, instruction: &Instruction) -> Option<u32> {
        let is_register = instruction.op1_kind() == OpKind::Register;
        match instruction.mnemonic() {
            Mnemonic::Xor if is_register => {
                (instruction.op0_register() == instruction.op1_register()).then_some(0)
            }
            Mnemonic::Mov if is_register => self.0[Constants::index(instruction.op1_register())?],
            Mnemonic::Mov => match instruction.op1_kind() {
                OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                    u32::try_from(instruction.immediate(1)).ok()
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// `svc #0`.
const SVC: u32 = 0xd400_0001;
/// `movz w8, #n` and `movz x8, #n`, without the number.
const MOVZ: [u32; 2] = [0x5280_0008, 0xd280_0008];
/// How many instructions before the call may load its number.
const LOADED_BEFORE: usize = 24;

fn aarch64(code: &[u8]) -> Vec<(usize, Number)> {
    let words: Vec<u32> = code
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let is_load = |word: &&u32| MOVZ.contains(&(**word & 0xffe0_001f));
    let calls = words.iter().enumerate().filter(|(_, word)| **word == SVC);
    calls
        .map(|(at, _)| {
            let load = words[at.saturating_sub(LOADED_BEFORE)..at].iter().rev().find(is_load);
            let number = load.map_or(Number::Unknown, |word| Number::Constant(word >> 5 & 0xffff));
            (at * 4, number)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mov eax, 202; mov rdi, rsi; syscall; ret`, after instructions that do nothing.
    const FUTEX: &[u8] = b"\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x55\x48\x89\xe5\
        \xb8\xca\0\0\0\x48\x89\xf7\x0f\x05\xc3";

    #[test]
    fn a_call_has_the_number_loaded_before_it() {
        assert_eq!(x86_64(FUTEX), [(FUTEX.len() - 3, Number::Constant(202))]);
        // `xor eax, eax; syscall` is `read`; `pop rax; syscall` is not known.
        assert_eq!(x86_64(b"\x90\x31\xc0\x0f\x05"), [(3, Number::Constant(0))]);
        assert_eq!(x86_64(b"\x90\x58\x0f\x05"), [(2, Number::Unknown)]);
        // `mov r12d, 9; xor edi, edi; mov eax, r12d; syscall`.
        let copied = b"\x41\xbc\x09\0\0\0\x31\xff\x44\x89\xe0\x0f\x05";
        assert_eq!(x86_64(copied), [(11, Number::Constant(9))]);
    }

    #[test]
    fn bytes_inside_an_instruction_are_no_call() {
        // `cmp dword ptr [rax], 0x050f`; `mov eax, 0x050f0001`, as in an unwinder.
        let inside = b"\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x81\x38\x0f\x05\0\0\
            \xb8\x01\0\x0f\x05\x90\x90\xc3";
        assert_eq!(x86_64(inside), []);
        // Constants among code: `rorl (%rcx); int1; jge; pop %rbx` and so on.
        let table = b"\x5e\x65\xff\xcc\xd1\x09\xf1\x7d\xef\x5b\x79\x5f\x4f\x45\xcc\x00\xfe\x86\xfa\
            \x28\xaa\x3f\x07\x1f\x02\x0f\x05";
        assert_eq!(x86_64(table), []);
    }

    #[test]
    fn an_aarch64_call_has_the_number_in_x8() {
        let mut code = Vec::new();
        // `mov x8, #63; nop; svc #0`, then a call whose number is computed.
        for word in [0xd280_07e8_u32, 0xd503_201f, SVC] {
            code.extend(word.to_le_bytes());
        }
        assert_eq!(aarch64(&code), [(8, Number::Constant(63))]);
        assert_eq!(aarch64(&SVC.to_le_bytes()), [(0, Number::Unknown)]);
    }

    #[test]
    fn only_calls_that_wait_are_reported_with_their_crate() {
        let function = |name: &str| vec![Function { address: 0x1000, size: 64, name: name.into() }];
        let mut found = BTreeMap::new();
        find(Machine::X86_64, FUTEX, 0x1000, &function("<rustix::fs as x::Y>::read"), &mut found);
        let inline = &found[&Some("futex")];
        assert_eq!((inline.places, &*inline.functions), (1, &["crate rustix".to_owned()][..]));
        let mut found = BTreeMap::new();
        find(Machine::X86_64, FUTEX, 0x1000, &function("cringle::raw::futex"), &mut found);
        // `mov eax, 39; syscall` is `getpid`.
        find(Machine::X86_64, b"\xb8\x27\0\0\0\x0f\x05", 0, &[], &mut found);
        assert_eq!(found, BTreeMap::new());
    }
}
