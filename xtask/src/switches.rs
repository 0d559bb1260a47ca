//! Disassembles an optimised program and checks the code that runs on a fiber's block and not on
//! the fiber's stack: it touches no thread-local (invariant I14). The compiler is free to move code
//! there. It is the code between the instruction that sets the thread pointer and the switch of
//! stacks, and between a switch back and the next such instruction.
//!
//! With `--cfg cringle_marks` the library notes the address behind each such instruction in a
//! section of the program.

use crate::Result;
use crate::commands::{self, output};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask switches              link-time optimisation off, thin and fat
  cargo xtask switches --lto fat

It needs objdump and objcopy (binutils) and x86-64.")]
pub(crate) struct Args {
    /// Link-time optimisations to check
    #[arg(long, value_delimiter = ',', default_values_t = ["off", "thin", "fat"].map(String::from))]
    lto: Vec<String>,
}

/// The section with the addresses. Each takes 8 bytes.
const SECTION: &str = "cringle_switches";
/// The section with the addresses where the thread pointer is written next if it was not the
/// caller's own.
const ENDS: &str = "cringle_switch_ends";
/// The instructions between two writes of the thread pointer, at most.
const LIMIT: usize = 512;
/// The instructions between a marked end and the write, at most.
const END_LIMIT: usize = 6;

pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut all_right = true;
    for lto in &args.lto {
        let program = build(lto)?;
        let mut code = Code::of(&program)?;
        code.ends = marks(&program, ENDS)?.into_iter().collect();
        let mut marks = marks(&program, SECTION)?;
        // Those of functions that the linker has dropped point nowhere.
        let first = code.instructions.first().map_or(0, |(address, _)| *address);
        marks.retain(|&mark| mark >= first);
        let problems: Vec<_> = marks.iter().filter_map(|&mark| code.check(mark).err()).collect();
        println!("lto {lto}: {} switches, {} problems", marks.len(), problems.len());
        problems.iter().for_each(|problem| println!("  {problem}"));
        all_right &= problems.is_empty() && !marks.is_empty();
    }
    Ok(all_right)
}

/// Builds a program with this link-time optimisation, and returns its path. It is a package of its
/// own, which needs no dependency but the library's.
fn build(lto: &str) -> Result<PathBuf> {
    let root = crate::root();
    let folder = root.join("target/switches");
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    std::fs::write(folder.join("main.rs"), "fn main() { cringle::run(|| ()); }\n")?;
    let manifest = format!(
        "[package]\nname = \"switches\"\nedition = \"2024\"\n\
         [[bin]]\nname = \"switches\"\npath = \"main.rs\"\n\
         [dependencies]\ncringle.path = {:?}\n\
         [profile.release]\nlto = {lto:?}\n[workspace]\n",
        root.join("crates/cringle")
    );
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    let mut command = commands::cargo();
    command.args(["build", "--release", "--quiet", "--target-dir"]).arg(folder.join("target"));
    command.current_dir(&folder).env("RUSTFLAGS", "--cfg cringle_marks");
    if !command.status()?.success() {
        return Err("the program could not be built".into());
    }
    Ok(folder.join("target/release/switches"))
}

/// Reads the addresses in a section.
fn marks(program: &Path, name: &str) -> Result<Vec<u64>> {
    let section = program.with_extension(name);
    let mut objcopy = Command::new("objcopy");
    // Without the flag, it would copy nothing: a program loads no such section.
    objcopy.arg("--set-section-flags").arg(format!("{name}=alloc"));
    output(objcopy.args(["-O", "binary", "-j", name]).arg(program).arg(&section))?;
    let words = std::fs::read(section)?;
    let words = words.chunks_exact(8);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
}

/// The instructions of a program.
struct Code {
    instructions: Vec<(u64, String)>,
    index: HashMap<u64, usize>,
    /// The functions that do not return, because they panic or continue a panic.
    diverging: HashSet<u64>,
    /// The functions that are called by a pointer, by the address of the pointer.
    pointers: HashMap<u64, u64>,
    ends: HashSet<u64>,
}

impl Code {
    fn of(program: &Path) -> Result<Code> {
        let mut objdump = Command::new("objdump");
        let dump = output(objdump.args(["-d", "--no-show-raw-insn"]).arg(program))?;
        let instructions: Vec<_> = dump.lines().filter_map(instruction).collect();
        let functions = dump.lines().filter_map(function);
        let diverging = functions.filter(|(_, name)| diverges(name)).map(|(at, _)| at).collect();
        let relocations = output(Command::new("objdump").arg("-R").arg(program))?;
        let pointers = relocations.lines().filter_map(pointer).collect();
        let places = instructions.iter().enumerate();
        let index = places.map(|(place, (address, _))| (*address, place)).collect();
        Ok(Code { instructions, index, diverging, pointers, ends: HashSet::new() })
    }

    /// Follows the code from a mark on all ways to the next write of the thread pointer. Returns
    /// the number of switches on them.
    fn check(&self, mark: u64) -> std::result::Result<usize, String> {
        let start = *self.index.get(&mark).ok_or(format!("{mark:x} is no instruction"))?;
        let (mut ways, mut seen, mut switches) = (vec![(start, 0)], HashSet::new(), 0);
        while let Some(way @ (at, depth)) = ways.pop() {
            if !seen.insert(way) {
                continue;
            }
            let (address, text) = &self.instructions[at];
            let problem = |what: &str| Err(format!("{mark:x}: `{text}` at {address:x}: {what}"));
            let name = text.split_whitespace().next().unwrap_or_default();
            if seen.len() > LIMIT {
                return problem("the thread pointer is not written again");
            }
            if self.ends.contains(address) {
                if self.touches_before_write(at) {
                    return problem("touches a thread-local at the end");
                }
                continue;
            }
            if self.is_switch(at) {
                switches += 1;
                ways.push((at + 1, depth));
                continue;
            }
            if text.contains("%fs:") {
                return problem("touches a thread-local");
            }
            match name {
                "wrfsbase" | "ud2" => {}
                "ret" if depth > 0 => {}
                "ret" => return problem("leaves the function"),
                _ if name.starts_with('j') || name == "call" => {
                    let Some(target) = self.target(text) else {
                        return problem("goes to an unknown place");
                    };
                    if self.diverging.contains(&target) {
                        continue;
                    }
                    let Some(&target) = self.index.get(&target) else {
                        return problem("leaves the program");
                    };
                    ways.push((target, depth + usize::from(name == "call")));
                    if name != "jmp" {
                        ways.push((at + 1, depth));
                    }
                }
                _ => ways.push((at + 1, depth)),
            }
        }
        if switches == 0 { Err(format!("{mark:x}: no switch follows")) } else { Ok(switches) }
    }

    /// Whether this is the call by which `corosensei` continues on the other stack, whose first
    /// instructions set the stack pointer.
    fn is_switch(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.text(before));
        self.text(at) == Some("call *(%rdx)") && before == Some("push %rbx")
    }

    /// Whether a thread-local is touched between a marked end and the instruction that follows it,
    /// a few instructions later.
    fn touches_before_write(&self, at: usize) -> bool {
        let texts = || (at..at + END_LIMIT).map_while(|at| self.text(at));
        let write = texts().position(|text| text.starts_with("wrfsbase"));
        write.is_some_and(|write| texts().take(write).any(|text| text.contains("%fs:")))
    }

    fn text(&self, at: usize) -> Option<&str> {
        self.instructions.get(at).map(|(_, text)| text.as_str())
    }

    fn target(&self, jump: &str) -> Option<u64> {
        let target = jump.split_whitespace().nth(1)?;
        match target.strip_prefix('@') {
            Some(pointer) => self.pointers.get(&address(pointer)?).copied(),
            None => address(target),
        }
    }
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The address and the text of a line of the disassembly, if it is an instruction.
fn instruction(line: &str) -> Option<(u64, String)> {
    let (at, text) = line.split_once(":\t")?;
    let mut parts = text.split(['#', '<']);
    let mut text = parts.next()?.split_whitespace().collect::<Vec<_>>().join(" ");
    // A call by a pointer at a fixed address, which the comment says.
    if text.starts_with("call *") && text.ends_with("(%rip)") {
        text = format!("call @{}", parts.next()?.trim());
    }
    Some((address(at.trim())?, text))
}

/// The address and the name of a function, if a line of the disassembly begins one.
fn function(line: &str) -> Option<(u64, &str)> {
    let (at, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((address(at)?, name))
}

/// Whether a function of std does not return.
fn diverges(name: &str) -> bool {
    ["panic", "expect_failed", "unwrap_failed", "resume_unwind"]
        .iter()
        .any(|part| name.contains(part) && (name.contains("core") || name.contains("std")))
}

/// The address of a pointer, and of the function that it points to, if a line of the relocations
/// has one.
fn pointer(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (at, kind, target) = (words.next()?, words.next()?, words.next()?);
    let target = target.strip_prefix("*ABS*+").filter(|_| kind == "R_X86_64_RELATIVE")?;
    Some((address(at)?, address(target)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = "cmp %rax,%rbx";
    const PANIC: u64 = 0x77;
    const POINTER: u64 = 0x1000;

    fn check(lines: &[&str]) -> std::result::Result<usize, String> {
        let lines = lines.iter().enumerate();
        let instructions: Vec<_> =
            lines.clone().map(|(at, text)| (at as u64, (*text).to_owned())).collect();
        let index = (0..instructions.len()).map(|at| (at as u64, at)).collect();
        let ends = lines.filter(|(_, text)| **text == END).map(|(at, _)| at as u64).collect();
        let (diverging, pointers) = (HashSet::from([PANIC]), HashMap::from([(POINTER, PANIC)]));
        Code { instructions, index, diverging, pointers, ends }.check(0)
    }

    #[test]
    fn only_code_that_touches_no_thread_local_may_precede_the_switch() {
        let switch = ["push %rbx", "call *(%rdx)"];
        let around = |before: &[&str], after: &[&str]| check(&[before, &switch, after].concat());
        let back = "wrfsbase %rbx";
        assert_eq!(around(&["mov %rax,%rbx"], &[back, "ret"]), Ok(1));
        assert_eq!(around(&[], &["je 5", "mov %rax,%rbx", back, "jmp 0"]), Ok(1));
        assert_eq!(around(&[], &["jne 4", back, "call 77", "ret"]), Ok(1));
        assert_eq!(around(&[], &["jne 4", back, "call @1000", "ret"]), Ok(1));
        assert!(around(&[], &["jne 4", back, "call @2000", "ret"]).is_err());
        assert!(around(&[], &["jne 4", back, "call 78", "ret"]).is_err());
        assert_eq!(around(&[], &[END, "je 5", back, "ret"]), Ok(1));
        assert!(around(&[], &[END, "je 6", "mov %fs:0x8,%rax", back, "ret"]).is_err());
        assert!(around(&[], &["je 5", END, back, "ret"]).is_err());
        // A function that is not inlined.
        assert_eq!(around(&["call 5"], &[back, "ret", "nop", "ret"]), Ok(1));
        assert!(around(&["mov %fs:0x8,%rax"], &[back]).is_err());
        assert!(around(&[], &["mov %fs:0x8,%rax", back]).is_err());
        assert!(around(&[], &["je 5", back, "ret", "mov %fs:0x8,%rax", back]).is_err());
        assert!(around(&["call 5"], &[back, "ret", "mov %fs:0x8,%rax"]).is_err());
        assert!(around(&["call *0x18(%rax)"], &[back]).is_err());
        assert!(around(&["ret"], &[back]).is_err());
        assert!(around(&[], &["ret"]).is_err());
        assert!(check(&["nop", back]).is_err());
        assert!(around(&[], &["nop"; LIMIT + 1]).is_err());
    }

    #[test]
    fn lines_of_the_disassembly_are_read() {
        let line = "   1234:\tmov    %rdi,%rsp        # 5678 <a>";
        assert_eq!(instruction(line), Some((0x1234, "mov %rdi,%rsp".to_owned())));
        assert_eq!(instruction("0000 <name>:"), None);
        assert_eq!(function("0000000000000010 <name>:"), Some((16, "name")));
        let call = "    20:\tcall   *0x10(%rip)        # 36 <_DYNAMIC+0x8>";
        assert_eq!(instruction(call), Some((0x20, "call @36".to_owned())));
        let relocation = "0000000000000036 R_X86_64_RELATIVE  *ABS*+0x0000000000000040";
        assert_eq!(pointer(relocation), Some((0x36, 0x40)));
        assert!(diverges("_RNvNtNtCs_4core6option13expect_failed"));
        assert!(!diverges("my_panic") && !diverges("_RNvCs_3std4exit"));
    }
}
