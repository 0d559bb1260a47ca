//! Disassembles an optimised program and checks the code between the instruction that sets the
//! thread pointer to a fiber's block and the switch to the fiber's stack: it touches no
//! thread-local (invariant I14). The compiler is free to move code there.
//!
//! With `--cfg cringle_marks` the library notes the address behind each such instruction in a
//! section of the program.

use crate::Result;
use crate::commands::{self, output};
use std::collections::HashMap;
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
/// The instructions between the mark and the switch, at most.
const LIMIT: usize = 64;

pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut all_right = true;
    for lto in &args.lto {
        let program = build(lto)?;
        let code = Code::of(&program)?;
        let mut marks = marks(&program)?;
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

/// Reads the marked addresses.
fn marks(program: &Path) -> Result<Vec<u64>> {
    let section = program.with_extension("marks");
    let mut objcopy = Command::new("objcopy");
    // Without the flag, it would copy nothing: a program loads no such section.
    objcopy.arg("--set-section-flags").arg(format!("{SECTION}=alloc"));
    output(objcopy.args(["-O", "binary", "-j", SECTION]).arg(program).arg(&section))?;
    let words = std::fs::read(section)?;
    let words = words.chunks_exact(8);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
}

/// The instructions of a program.
struct Code {
    instructions: Vec<(u64, String)>,
    index: HashMap<u64, usize>,
}

impl Code {
    fn of(program: &Path) -> Result<Code> {
        let mut objdump = Command::new("objdump");
        let dump = output(objdump.args(["-d", "--no-show-raw-insn"]).arg(program))?;
        let instructions: Vec<_> = dump.lines().filter_map(instruction).collect();
        let places = instructions.iter().enumerate();
        let index = places.map(|(place, (address, _))| (*address, place)).collect();
        Ok(Code { instructions, index })
    }

    /// Follows the code from a mark to the switch of stacks.
    fn check(&self, mark: u64) -> std::result::Result<(), String> {
        let mut at = *self.index.get(&mark).ok_or(format!("{mark:x} is no instruction"))?;
        for _ in 0..LIMIT {
            if self.is_switch(at) {
                return Ok(());
            }
            let (address, text) = &self.instructions[at];
            let name = text.split_whitespace().next().unwrap_or_default();
            if text.contains("%fs:") || name.starts_with("ret") {
                return Err(format!("{mark:x}: `{text}` at {address:x}, before the switch"));
            }
            at = match name {
                // A function that contains the switch, if it is not inlined.
                "jmp" | "call" => {
                    self.target(text).ok_or(format!("{mark:x}: `{text}` at {address:x}"))?
                }
                _ => at + 1,
            };
        }
        Err(format!("{mark:x}: no switch within {LIMIT} instructions"))
    }

    /// Whether this is the call by which `corosensei` continues on the other stack, whose first
    /// instructions set the stack pointer.
    fn is_switch(&self, at: usize) -> bool {
        let text = |at: usize| self.instructions[at].1.as_str();
        at > 0 && text(at) == "call *(%rdx)" && text(at - 1) == "push %rbx"
    }

    fn target(&self, jump: &str) -> Option<usize> {
        let address = jump.split_whitespace().nth(1)?;
        self.index.get(&u64::from_str_radix(address, 16).ok()?).copied()
    }
}

/// The address and the text of a line of the disassembly, if it is an instruction.
fn instruction(line: &str) -> Option<(u64, String)> {
    let (address, text) = line.split_once(":\t")?;
    let text = text.split(['#', '<']).next()?.split_whitespace().collect::<Vec<_>>().join(" ");
    Some((u64::from_str_radix(address.trim(), 16).ok()?, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str]) -> std::result::Result<(), String> {
        let lines = lines.iter().enumerate();
        let instructions: Vec<_> =
            lines.map(|(at, text)| (at as u64, (*text).to_owned())).collect();
        let index = (0..instructions.len()).map(|at| (at as u64, at)).collect();
        Code { instructions, index }.check(0)
    }

    #[test]
    fn only_code_that_touches_no_thread_local_may_precede_the_switch() {
        assert!(check(&["mov %rax,%rbx", "push %rbx", "call *(%rdx)"]).is_ok());
        assert!(check(&["call 2", "ret", "push %rbx", "call *(%rdx)"]).is_ok());
        assert!(check(&["mov %fs:0x8,%rax", "push %rbx", "call *(%rdx)"]).is_err());
        assert!(check(&["call 2", "nop", "mov %fs:0x8,%rax"]).is_err());
        assert!(check(&["call *0x18(%rax)", "push %rbx", "call *(%rdx)"]).is_err());
        assert!(check(&["ret", "push %rbx", "call *(%rdx)"]).is_err());
        assert!(check(&["nop"; LIMIT + 1]).is_err());
    }

    #[test]
    fn lines_of_the_disassembly_are_read() {
        let line = "   1234:\tmov    %rdi,%rsp        # 5678 <a>";
        assert_eq!(instruction(line), Some((0x1234, "mov %rdi,%rsp".to_owned())));
        assert_eq!(instruction("0000 <name>:"), None);
    }
}
