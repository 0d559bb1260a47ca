//! Which of the three calls are answered, each asked for in a child of its own.

use super::child::{Answer, ask};
use super::raw::{self, Params};
use serde::Serialize;
use std::io;

/// A descriptor that is none: who is let through hears `EBADF`.
const NO_RING: i32 = i32::MAX;
const REGISTER_PROBE: u32 = 8;
const ANSWERED: i32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Setup,
    Enter,
    Register,
}

impl Name {
    pub(crate) const ALL: [Name; 3] = [Name::Setup, Name::Enter, Name::Register];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::Setup => "io_uring_setup",
            Name::Enter => "io_uring_enter",
            Name::Register => "io_uring_register",
        }
    }

    /// The error number of the smallest use, 0 if there is none.
    fn attempt(self) -> i32 {
        let result = match self {
            Name::Setup => raw::setup_when_freed(1, &Params::default()).map(drop),
            Name::Enter => raw::enter(NO_RING, 0).map(drop),
            Name::Register => {
                let nothing = std::ptr::null_mut::<u8>();
                // SAFETY: there is no such ring, so that nothing is read or written.
                unsafe { raw::register(NO_RING, REGISTER_PROBE, nothing, 0) }.map(drop)
            }
        };
        result.err().and_then(|error| error.raw_os_error()).unwrap_or(ANSWERED)
    }
}

/// What becomes of who makes the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Allowed,
    /// By this error.
    Denied(i32),
    /// By this signal.
    Killed(i32),
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub name: Name,
    pub fate: Fate,
}

pub(crate) fn all() -> Vec<Call> {
    Name::ALL.into_iter().map(|name| Call { name, fate: fate_of(name) }).collect()
}

fn fate_of(name: Name) -> Fate {
    judge(name, ask(|mouth| mouth.tell(name.attempt())))
}

fn judge(name: Name, answer: Answer) -> Fate {
    match (answer.unanswered, answer.signal, answer.told.first()) {
        (Some(why), ..) => Fate::Unknown(why),
        (None, Some(signal), _) => Fate::Killed(signal),
        (None, None, Some(&error)) => match error {
            ANSWERED => Fate::Allowed,
            libc::EPERM | libc::EACCES | libc::ENOSYS => Fate::Denied(error),
            // Only making a ring asks for something that can be lacking.
            error if name == Name::Setup => Fate::Denied(error),
            _ => Fate::Allowed,
        },
        (None, None, None) => Fate::Unknown("the child said nothing".into()),
    }
}

impl Fate {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Fate::Allowed => "allowed",
            Fate::Denied(libc::ENOSYS) => "missing",
            Fate::Denied(_) => "denied",
            Fate::Killed(_) => "kills",
            Fate::Unknown(_) => "unknown",
        }
    }

    pub(crate) fn detail(&self) -> Option<String> {
        match self {
            Fate::Allowed => None,
            Fate::Denied(error) => Some(io::Error::from_raw_os_error(*error).to_string()),
            Fate::Killed(libc::SIGSYS) => Some("who calls it is killed (SIGSYS)".into()),
            Fate::Killed(signal) => Some(format!("who calls it is killed (signal {signal})")),
            Fate::Unknown(why) => Some(why.clone()),
        }
    }
}

impl Serialize for Call {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Call", 3)?;
        out.serialize_field("call", self.name.text())?;
        out.serialize_field("state", self.fate.word())?;
        out.serialize_field("detail", &self.fate.detail())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: i32) -> Answer {
        Answer { told: vec![error], ..Answer::default() }
    }

    #[test]
    fn a_bad_descriptor_is_an_answer_and_a_lack_of_memory_is_not() {
        assert_eq!(judge(Name::Enter, told(libc::EBADF)), Fate::Allowed);
        assert_eq!(judge(Name::Enter, told(libc::EPERM)), Fate::Denied(libc::EPERM));
        assert_eq!(judge(Name::Setup, told(libc::ENOMEM)), Fate::Denied(libc::ENOMEM));
    }

    #[test]
    fn silence_is_not_taken_for_consent() {
        let silent = judge(Name::Setup, Answer::default());
        assert_eq!(silent.word(), "unknown");
        let killed = Answer { signal: Some(libc::SIGSYS), ..Answer::default() };
        assert_eq!(judge(Name::Setup, killed).word(), "kills");
    }
}
