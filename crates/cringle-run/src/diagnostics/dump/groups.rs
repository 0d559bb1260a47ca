//! The text of the fibers of a dump. Fibers whose entries would differ only in their times are one
//! entry, with their number and the shortest and the longest time. The wait is part of an entry,
//! with the address of its lock, so no group hides which of several locks many fibers wait for.

use super::text::{Age, INDENT, paragraph};
use super::{FiberReport, FiberState, WaitsFor};
use cringle_sys::plainly;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// Fibers with equal entries.
pub(super) struct Group<'a> {
    first: &'a FiberReport,
    count: usize,
    age: Option<Range>,
    timer: Option<Range>,
    deadline: Option<Range>,
}

/// The shortest and the longest of some times.
struct Range(Duration, Duration);

/// Returns the groups, in the order of their first fibers.
pub(super) fn groups(fibers: &[FiberReport]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known = HashMap::new();
    for fiber in fibers {
        let at = *known.entry(likeness(fiber)).or_insert(groups.len());
        // A backtrace is each fiber's own.
        match groups.get_mut(at).filter(|group| group.first.backtrace.is_none()) {
            Some(group) if fiber.backtrace.is_none() => group.add(fiber),
            _ => groups.push(Group::of(fiber)),
        }
    }
    groups
}

/// What equal entries have in common: all of an entry but its times. A wait has the address of its
/// lock or channel in it.
fn likeness(fiber: &FiberReport) -> String {
    let (wait, has_timer) = match &fiber.state {
        FiberState::Running => ("runs".to_owned(), false),
        FiberState::Ready => ("ready".to_owned(), false),
        FiberState::Waiting { for_what, timer, .. } => (for_what.to_string(), timer.is_some()),
    };
    let flags = (fiber.worker, has_timer, fiber.deadline.is_some(), fiber.cancelled);
    format!("{wait} {:?} {:?} {flags:?}", fiber.who, fiber.scope)
}

impl<'a> Group<'a> {
    fn of(first: &'a FiberReport) -> Group<'a> {
        let mut group = Group { first, count: 0, age: None, timer: None, deadline: None };
        group.add(first);
        group
    }

    fn add(&mut self, fiber: &FiberReport) {
        self.count += 1;
        if let FiberState::Waiting { age, timer, .. } = fiber.state {
            widen(&mut self.age, Some(age));
            widen(&mut self.timer, timer);
        }
        widen(&mut self.deadline, fiber.deadline);
    }

    /// The state of a fiber, or of several.
    fn state(&self) -> String {
        let one = self.count == 1;
        match (&self.first.state, &self.age) {
            (FiberState::Running, _) => "made this dump".to_owned(),
            (FiberState::Waiting { .. }, Some(age)) if one => format!("waits for {age}"),
            (FiberState::Waiting { .. }, Some(age)) => {
                format!("{} fibers, wait for {age}", self.count)
            }
            _ if one => "is ready".to_owned(),
            _ => format!("{} fibers, are ready", self.count),
        }
    }
}

fn widen(range: &mut Option<Range>, time: Option<Duration>) {
    if let Some(time) = time {
        let Range(shortest, longest) = range.take().unwrap_or(Range(time, time));
        *range = Some(Range(shortest.min(time), longest.max(time)));
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [shortest, longest] = [self.0, self.1].map(|time| Age(time).to_string());
        f.write_str(&shortest)?;
        if shortest == longest { Ok(()) } else { write!(f, " to {longest}") }
    }
}

impl Display for Group<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let fiber = self.first;
        paragraph(f, "", &format!("{}  worker {}, {}", fiber.who, fiber.worker, self.state()))?;
        if let FiberState::Waiting { for_what, .. } = &fiber.state {
            let mut text = for_what.to_string();
            match &self.timer {
                Some(timer) if matches!(for_what, WaitsFor::Timer) => {
                    text += &format!(", in {timer}")
                }
                Some(timer) => text += &format!("; a timer in {timer}"),
                None => {}
            }
            paragraph(f, INDENT, &text)?;
        }
        if fiber.cancelled {
            let text = if self.count == 1 { "it is cancelled" } else { "they are cancelled" };
            paragraph(f, INDENT, text)?;
        }
        if let Some(deadline) = &self.deadline {
            paragraph(f, INDENT, &format!("a deadline in {deadline}"))?;
        }
        if let Some(place) = fiber.who.place() {
            paragraph(f, INDENT, &format!("spawned at {place}"))?;
        }
        if let Some(scope) = &fiber.scope {
            let owner = scope.owner.as_ref().map_or(String::new(), |who| format!(" of {who}"));
            paragraph(f, INDENT, &format!("in the scope{owner} at {}", scope.opened))?;
        }
        if let Some(backtrace) = &fiber.backtrace {
            // It looks symbols up in files.
            let text = plainly(|| backtrace.to_string());
            // Not wrapped, because tools read these lines too.
            for line in text.lines() {
                writeln!(f, "{INDENT}{line}")?;
            }
        }
        Ok(())
    }
}

impl Display for FiberReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Group::of(self).fmt(f)
    }
}
