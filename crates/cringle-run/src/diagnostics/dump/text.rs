//! The text of a dump, at most 80 columns wide.

use super::groups::groups;
use super::report::Holder;
use super::{Dump, FiberReport, FiberState, SilentWorker, WaitsFor, Who};
use cringle_core::label::describe_fiber;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

const COLUMNS: usize = 80;
pub(super) const INDENT: &str = "    ";

impl Display for Dump {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let waiting = |fiber: &&FiberReport| matches!(fiber.state, FiberState::Waiting { .. });
        let waiting = self.fibers.iter().filter(waiting).count();
        let (fibers, workers) = (self.fibers.len(), self.workers);
        let mut head = format!(
            "{fibers} fiber{} on {workers} worker{}, {waiting} waiting",
            plural(fibers),
            plural(workers),
        );
        if self.unstarted > 0 {
            head += &format!("; {} not started yet", self.unstarted);
        }
        // Their fibers are not counted.
        let silent = self.silent.len();
        if silent > 0 {
            head += &format!("; {silent} worker{} not answering", plural(silent));
        }
        paragraph(f, "", &head)?;
        for silent in &self.silent {
            paragraph(f, "", &silent.to_string())?;
        }
        for cycle in self.cycles() {
            self.write_cycle(f, &cycle)?;
        }
        for group in groups(&self.fibers) {
            write!(f, "{group}")?;
        }
        Ok(())
    }
}

impl Dump {
    fn write_cycle(&self, f: &mut Formatter<'_>, cycle: &[usize]) -> fmt::Result {
        let names: Vec<String> = cycle.iter().map(|&at| self.fibers[at].who.to_string()).collect();
        let text = match &names[..] {
            [one] => format!("DEADLOCK: {one} waits for a lock that it holds itself"),
            many => format!(
                "DEADLOCK: {}: each waits for a lock that the next one holds, the last one for a lock \
                 of the first",
                many.join(", ")
            ),
        };
        paragraph(f, "", &text)
    }
}

impl Display for SilentWorker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let SilentWorker { worker, runs, is_stuck, silent_for, others } = self;
        write!(f, "STUCK: worker {worker} has not answered for {}: ", Age(*silent_for))?;
        match (runs, is_stuck) {
            (Some(who), true) => write!(f, "it runs {}, which does not suspend", who.in_full())?,
            (Some(who), false) => write!(f, "its turn is long, and now runs {}", who.in_full())?,
            (None, _) => write!(f, "it runs no fiber, and gets no processor")?,
        }
        match others {
            0 => Ok(()),
            1 => f.write_str("; its other fiber is not in this dump"),
            others => write!(f, "; its {others} other fibers are not in this dump"),
        }
    }
}

impl Display for Who {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.name, self.place()) {
            (Some(name), _) => write!(f, "'{name}'"),
            (None, Some(place)) => {
                let line = place.rsplit_once(':').map_or(&*place, |(line, _column)| line);
                write!(f, "<of {line}>")
            }
            (None, None) => f.write_str("<not begun>"),
        }
    }
}

impl Who {
    /// The place in the program that spawned the fiber.
    pub(super) fn place(&self) -> Option<String> {
        let spawned = || self.spawned.map(|spawned| spawned.to_string());
        self.thread.map(str::to_owned).or_else(spawned)
    }

    /// Describes the fiber with the place that spawned it.
    pub(super) fn in_full(&self) -> String {
        describe_fiber(self.name.as_deref(), self.place().as_deref())
    }
}

impl Display for WaitsFor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::Operation { name, fd, file, offset, path, peer, address, aside, batch } => {
                if let Some((under_way, count)) = batch {
                    write!(f, "{under_way} of a batch of {count}, the first: ")?;
                }
                f.write_str(name)?;
                match (fd, file) {
                    (Some(fd), Some(file)) => write!(f, ", fd {fd} ({file})")?,
                    (Some(fd), None) => write!(f, ", fd {fd}")?,
                    (None, _) => {}
                }
                offset.map_or(Ok(()), |offset| write!(f, ", offset {offset}"))?;
                path.as_ref().map_or(Ok(()), |path| write!(f, ", \"{}\"", path.display()))?;
                peer.map_or(Ok(()), |peer| write!(f, ", {peer}"))?;
                address.map_or(Ok(()), |address| write!(f, ", at {address:#x}"))?;
                f.write_str(if *aside { ", by a thread of the pool" } else { "" })
            }
            WaitsFor::Lock { address, holder } => {
                write!(f, "the lock at {address:#x}, ")?;
                match holder {
                    Holder::Fiber(_, who) => write!(f, "which {who} holds"),
                    Holder::Readers(count) => {
                        write!(f, "which {count} reader{} hold", plural(*count))
                    }
                    Holder::Thread => f.write_str("which a thread outside of any fiber holds"),
                    Holder::Unknown => {
                        f.write_str("held by a fiber that has ended or is not in this dump")
                    }
                    Holder::Nobody => f.write_str("which was just released"),
                }
            }
            WaitsFor::Permits { address, free } => {
                write!(f, "permits of the semaphore at {address:#x}, which has {free} free")
            }
            WaitsFor::Join(who) => write!(f, "the end of {}", who.in_full()),
            WaitsFor::Scope(1) => f.write_str("the last fiber of a scope"),
            WaitsFor::Scope(left) => write!(f, "{left} fibers of a scope"),
            WaitsFor::Timer => f.write_str("a timer"),
            WaitsFor::Unpark => f.write_str("an unpark"),
            WaitsFor::Other { what, address: Some(address) } => {
                write!(f, "{what}, at {address:#x}")
            }
            WaitsFor::Other { what, address: None } => f.write_str(what),
        }
    }
}

/// Prints a time in units that fit its length.
pub(super) struct Age(pub(super) Duration);

impl Display for Age {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => write!(f, "{} ms", self.0.as_millis()),
            1..60 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} min", seconds / 3600, seconds / 60 % 60),
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Writes text in lines of at most [`COLUMNS`] characters. Lines after the first are indented
/// further.
pub(super) fn paragraph(f: &mut Formatter<'_>, indent: &str, text: &str) -> fmt::Result {
    f.write_str(indent)?;
    let mut column = indent.len();
    let further = indent.len() + INDENT.len();
    let mut first = true;
    for word in text.split(' ') {
        let mut word = word;
        let width = word.chars().count();
        if !first && column + 1 + width > COLUMNS {
            write!(f, "\n{:further$}", "")?;
            column = further;
        } else if !first {
            f.write_str(" ")?;
            column += 1;
        }
        // A word too long for a line of its own (a path) continues in the next.
        while column + word.chars().count() > COLUMNS {
            let room = COLUMNS - column;
            let end = word.char_indices().nth(room).map_or(word.len(), |(at, _)| at);
            write!(f, "{}\n{:further$}", &word[..end], "")?;
            word = &word[end..];
            column = further;
        }
        f.write_str(word)?;
        column += word.chars().count();
        first = false;
    }
    writeln!(f)
}
