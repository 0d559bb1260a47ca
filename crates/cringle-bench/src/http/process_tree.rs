//! The resources of a process and its descendants, read from outside (`/proc`).

use crate::meter::Usage;
use rustix::param::clock_ticks_per_second;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

pub(super) struct ProcessTree {
    root: u32,
    /// The context switches of each thread, by the numbers of its process and its own. A thread
    /// that has ended keeps its last count.
    switches: HashMap<(u32, u32), u64>,
}

/// Some fields of `/proc/N/stat`.
struct Stat {
    id: u32,
    parent: u32,
    group: u32,
    /// The CPU time of children that were reaped.
    reaped: Duration,
}

impl ProcessTree {
    pub(super) fn of(root: u32) -> ProcessTree {
        ProcessTree { root, switches: HashMap::new() }
    }

    /// Returns the numbers of the processes that exist now.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.members().iter().map(|one| one.id).collect()
    }

    /// Returns the resources used since the start of the processes. The CPU time of reaped
    /// processes has the resolution of the kernel's ticks, and all of it counts as user time.
    pub(super) fn used(&mut self) -> io::Result<Usage> {
        let mut cpu = Duration::ZERO;
        for one in self.members() {
            // A process that has just ended counts as reaped by its parent, if that has waited for
            // it.
            cpu += cpu_time(one.id).unwrap_or_default() + one.reaped;
            self.record_switches(one.id);
        }
        let context_switches = self.switches.values().sum();
        Ok(Usage { user_seconds: cpu.as_secs_f64(), context_switches, ..Usage::default() })
    }

    fn members(&self) -> Vec<Stat> {
        let all: Vec<Stat> = numbers("/proc").filter_map(stat).collect();
        let mut members = vec![self.root];
        let mut at = 0;
        while let Some(&id) = members.get(at) {
            at += 1;
            let below = |one: &&Stat| one.parent == id || (one.group == self.root && at == 1);
            for one in all.iter().filter(below) {
                if !members.contains(&one.id) {
                    members.push(one.id);
                }
            }
        }
        all.into_iter().filter(|one| members.contains(&one.id)).collect()
    }

    fn record_switches(&mut self, id: u32) {
        for thread in numbers(&format!("/proc/{id}/task")) {
            if let Some(count) = switches(id, thread) {
                let recorded = self.switches.entry((id, thread)).or_default();
                *recorded = count.max(*recorded);
            }
        }
    }
}

/// Returns the entries of a directory that are numbers.
fn numbers(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn stat(id: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

fn parse(line: &str) -> Option<Stat> {
    let (id, rest) = line.split_once(' ')?;
    // The name of the process may contain any character, even `)`.
    let fields: Vec<&str> = rest.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    Some(Stat {
        id: id.parse().ok()?,
        parent: number(1)? as u32,
        group: number(2)? as u32,
        reaped: ticks(number(13)? + number(14)?),
    })
}

/// Returns the time of so many of the kernel's ticks.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 1000 / clock_ticks_per_second())
}

fn switches(id: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{thread}/status")).ok()?;
    let count = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
    Some(text.lines().filter_map(count).sum())
}

/// Returns the CPU time of a process, including threads that have ended.
fn cpu_time(id: u32) -> io::Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the calls write to `clock` and `time`, whole values of their types.
    unsafe {
        match libc::clock_getcpuclockid(id as libc::pid_t, &raw mut clock) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        if libc::clock_gettime(clock, &raw mut time) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn grandchildren_count() {
        let script = "sh -c 'i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo; read _; :'; :";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let mut tree = ProcessTree::of(child.id());
        assert_eq!(tree.ids().len(), 2);
        let (all, alone) = (tree.used().unwrap(), cpu_time(child.id()).unwrap().as_secs_f64());
        assert!(alone > 0.0 && all.cpu_seconds() > 2.0 * alone, "{all:?} {alone}");
        assert!(all.context_switches > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(tree.ids().is_empty());
    }

    #[test]
    fn a_name_may_contain_parentheses() {
        let line = "12 (a) b) S 3 4 5 0 -1 0 1 2 3 4 5 6 200 100 20 0 1 0 9";
        let stat = parse(line).unwrap();
        assert_eq!((stat.id, stat.parent, stat.group), (12, 3, 4));
        assert_eq!(stat.reaped, ticks(300));
    }
}
