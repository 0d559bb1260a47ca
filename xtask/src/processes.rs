//! The processes of a program or check: where their threads stand, and their end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::{fs, io};

/// Describes the threads of a program and of all processes below it. Tests often wait for a child,
/// and the child is what hangs.
pub(crate) fn show(program: u32) -> String {
    let mut text = String::new();
    for pid in family(program) {
        describe(pid, &mut text);
    }
    text
}

/// Kills the process group of a program when this is dropped: what the program has left behind. If
/// the runner is killed, the kernel closes the pipe, and the group ends as well.
pub(crate) struct Leash(Child);

impl Leash {
    /// `program` leads a group of its own.
    pub(crate) fn of(program: u32) -> io::Result<Leash> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat; kill -s KILL -- \"-$1\"", "sh", &program.to_string()]);
        // In a group of its own: what interrupts the runner does not reach it.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Leash(shell.spawn()?))
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends at once, and there is nobody to tell if it has been killed.
        let _ = self.0.wait();
    }
}

/// Kills a program and all processes below it.
pub(crate) fn kill(program: u32) {
    let family = family(program).into_iter().map(|pid| pid.to_string());
    // The command is everywhere, and there is nobody to tell if a process has ended meanwhile.
    let _ = Command::new("kill").arg("-KILL").args(family).stderr(Stdio::null()).status();
}

fn describe(pid: u32, text: &mut String) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let command = read(&format!("/proc/{pid}/cmdline")).replace('\0', " ");
    let _ = writeln!(text, "-- process {pid}: {command}");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads.map(|entry| entry.path()) {
        let of = |name: &str| read(&thread.join(name).to_string_lossy());
        let number = thread.file_name().unwrap_or_default().to_string_lossy();
        let (name, call, stack) = (of("comm"), of("syscall"), of("stack"));
        let _ = write!(text, "   thread {number} {}: {call}{stack}", name.trim_end());
    }
    let debugger = Command::new("timeout")
        .args([
            "60",
            "gdb",
            "-batch",
            "-ex",
            "thread apply all backtrace 20",
            "-p",
            &pid.to_string(),
        ])
        .stdin(Stdio::null())
        .output();
    match debugger {
        Ok(output) if output.status.success() => *text += &String::from_utf8_lossy(&output.stdout),
        _ => *text += "   (gdb is not installed, or may not look: no backtraces)\n",
    }
}

/// Returns a process and all processes below it.
fn family(ancestor: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some((pid, parent)) = pid.and_then(|pid| Some((pid, parent_of(pid)?))) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut family = vec![ancestor];
    let mut next = 0;
    while let Some(pid) = family.get(next) {
        family.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    family
}

/// The second field after the name in a process's `stat`. The name may contain spaces and
/// parentheses.
fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_program_is_shown_and_killed_with_its_children() {
        let mut shell = Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        while family(shell.id()).len() < 2 {
            std::thread::yield_now();
        }
        let child = family(shell.id())[1];
        assert!(show(shell.id()).contains(&format!("-- process {child}: ")));
        kill(shell.id());
        assert_eq!(shell.wait().unwrap().signal(), Some(9));
        wait_for_end(child);
    }

    /// The signal has been sent, and whoever inherits the child may still have to wait for it.
    fn wait_for_end(child: u32) {
        let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z ") || state().contains(") X ")) {
            std::thread::yield_now();
        }
    }

    /// A program that ends, and leaves a child behind, whose number it prints.
    fn leaves_a_child() -> (u32, u32) {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 >/dev/null & echo $!"]).process_group(0);
        let shell = shell.stdout(Stdio::piped()).spawn().unwrap();
        let program = shell.id();
        let output = shell.wait_with_output().unwrap();
        (program, String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
    }

    #[test]
    fn what_a_program_leaves_behind_is_killed() {
        let (program, child) = leaves_a_child();
        drop(Leash::of(program).unwrap());
        wait_for_end(child);
    }

    #[test]
    fn programs_end_with_the_runner() {
        let (program, child) = leaves_a_child();
        let mut leash = Leash::of(program).unwrap();
        // As the kernel does it.
        drop(leash.0.stdin.take());
        wait_for_end(child);
    }
}
