//! A program that takes too long: where each of its threads stands, and its end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

/// Describes the threads of a program and of all processes below it. Tests often wait for a child,
/// and the child is what hangs.
pub(super) fn show(program: u32) -> String {
    let mut text = String::new();
    for pid in family(program) {
        describe(pid, &mut text);
    }
    text
}

/// Kills a program and all processes below it.
pub(super) fn kill(program: u32) {
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

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain spaces and parentheses.
    let (_, after_name) = status.rsplit_once(") ")?;
    after_name.split(' ').nth(1)?.parse().ok()
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
        // Whoever inherits it may still have to wait for it.
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z ") || state.contains(") X "), "{state}");
    }
}
