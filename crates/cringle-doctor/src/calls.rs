//! Tests whether this process may make each of io_uring's three system calls, in a child for each.

use super::child::{Answer, ask_child};
use super::raw::{self, Params};
use serde::Serialize;
use std::io;

/// An invalid descriptor: a call that is allowed fails with `EBADF`.
const NO_RING: i32 = i32::MAX;
const REGISTER_PROBE: u32 = 8;
const ANSWERED: i32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syscall {
    Setup,
    Enter,
    Register,
}

impl Syscall {
    pub(crate) const ALL: [Syscall; 3] = [Syscall::Setup, Syscall::Enter, Syscall::Register];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Syscall::Setup => "io_uring_setup",
            Syscall::Enter => "io_uring_enter",
            Syscall::Register => "io_uring_register",
        }
    }

    /// Makes the smallest possible call and returns its error number, or 0.
    fn attempt(self) -> i32 {
        let result = match self {
            Syscall::Setup => raw::setup_when_freed(1, &mut Params::default()).map(drop),
            Syscall::Enter => raw::enter(NO_RING, 0).map(drop),
            Syscall::Register => {
                let nothing = std::ptr::null_mut::<u8>();
                // SAFETY: the descriptor is invalid, so that the kernel reads and writes no memory.
                unsafe { raw::register(NO_RING, REGISTER_PROBE, nothing, 0) }.map(drop)
            }
        };
        result.err().and_then(|error| error.raw_os_error()).unwrap_or(ANSWERED)
    }
}

/// The effect of a call on its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    /// It fails with this error number.
    Denied(i32),
    /// This signal kills the caller.
    Killed(i32),
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub name: Syscall,
    pub outcome: Outcome,
}

pub(crate) fn all() -> Vec<Call> {
    Syscall::ALL.into_iter().map(|name| Call { name, outcome: outcome_of(name) }).collect()
}

fn outcome_of(name: Syscall) -> Outcome {
    interpret(name, ask_child(|reply| reply.send(name.attempt())))
}

fn interpret(name: Syscall, answer: Answer) -> Outcome {
    match (answer.unanswered, answer.signal, answer.numbers.first()) {
        (Some(why), ..) => Outcome::Unknown(why),
        (None, Some(signal), _) => Outcome::Killed(signal),
        (None, None, Some(&error)) => match error {
            ANSWERED => Outcome::Allowed,
            libc::EPERM | libc::EACCES | libc::ENOSYS => Outcome::Denied(error),
            // Only `io_uring_setup` needs memory and a descriptor, and fails without them. The
            // others reach the kernel's own check of their arguments.
            error if name == Syscall::Setup => Outcome::Denied(error),
            _ => Outcome::Allowed,
        },
        (None, None, None) => Outcome::Unknown("the child sent no result".into()),
    }
}

impl Outcome {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Denied(libc::ENOSYS) => "missing",
            Outcome::Denied(_) => "denied",
            Outcome::Killed(_) => "kills",
            Outcome::Unknown(_) => "unknown",
        }
    }

    pub(crate) fn detail(&self) -> Option<String> {
        match self {
            Outcome::Allowed => None,
            Outcome::Denied(error) => Some(io::Error::from_raw_os_error(*error).to_string()),
            Outcome::Killed(libc::SIGSYS) => Some("the caller is killed (SIGSYS)".into()),
            Outcome::Killed(signal) => Some(format!("the caller is killed (signal {signal})")),
            Outcome::Unknown(why) => Some(why.clone()),
        }
    }
}

impl Serialize for Call {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Call", 3)?;
        out.serialize_field("call", self.name.text())?;
        out.serialize_field("state", self.outcome.word())?;
        out.serialize_field("detail", &self.outcome.detail())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: i32) -> Answer {
        Answer { numbers: vec![error], ..Answer::default() }
    }

    #[test]
    fn a_bad_descriptor_means_allowed_and_missing_memory_denied() {
        assert_eq!(interpret(Syscall::Enter, answer(libc::EBADF)), Outcome::Allowed);
        assert_eq!(interpret(Syscall::Enter, answer(libc::EPERM)), Outcome::Denied(libc::EPERM));
        assert_eq!(interpret(Syscall::Setup, answer(libc::ENOMEM)), Outcome::Denied(libc::ENOMEM));
    }

    #[test]
    fn a_child_without_a_result_is_unknown() {
        let silent = interpret(Syscall::Setup, Answer::default());
        assert_eq!(silent.word(), "unknown");
        let killed = Answer { signal: Some(libc::SIGSYS), ..Answer::default() };
        assert_eq!(interpret(Syscall::Setup, killed).word(), "kills");
    }
}
