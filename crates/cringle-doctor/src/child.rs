//! Runs a test in a child process, so that a system call that kills its caller is a result too.
//!
//! The child is a fork: it has this process's filters, limits and namespaces, needs no `/proc` to
//! find its program, and releases everything it made when it ends. It sends its result as numbers
//! through a pipe.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{self, PipeReader, PipeWriter, Read, Write};

/// The number and the length of the polls for a result, after which the child is killed. No test
/// takes nearly as long, unless a seccomp filter waits for a supervisor that never answers. Polls
/// are counted instead of time, because the child makes no progress while the machine is suspended.
const POLLS: u32 = 100;
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The result of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub numbers: Vec<i32>,
    /// The signal that ended the child.
    pub signal: Option<i32>,
    /// Why there is no result: the child did not start, or sent nothing for too long.
    pub unanswered: Option<String>,
}

impl Answer {
    /// Returns the text that the child sent after so many numbers.
    pub(crate) fn text_from(&self, count: usize) -> String {
        let numbers = self.numbers.iter().skip(count);
        numbers.filter_map(|&number| char::from_u32(number as u32)).collect()
    }
}

/// The child's end of the pipe.
pub(crate) struct Reply(PipeWriter);

impl Reply {
    pub(crate) fn send(&mut self, number: i32) {
        // An error means that the parent is gone, and needs no result.
        let _ = self.0.write_all(&number.to_ne_bytes());
    }

    /// Sends a text as the numbers of its characters.
    pub(crate) fn send_text(&mut self, text: &str) {
        text.chars().for_each(|character| self.send(character as i32));
    }
}

/// Runs `question` in a child and returns what it sent.
///
/// The calling process must have only one thread: `doctor` calls this before it starts others.
pub(crate) fn ask_child(question: impl FnOnce(&mut Reply)) -> Answer {
    asked(question).unwrap_or_else(|error| Answer {
        unanswered: Some(format!("no child process could be started: {error}")),
        ..Answer::default()
    })
}

fn asked(question: impl FnOnce(&mut Reply)) -> io::Result<Answer> {
    let (mut reader, reply) = io::pipe()?;
    // SAFETY: this process has one thread (the requirement of `ask_child`), so that no lock is held
    // by a thread that the child lacks. The child continues as this thread and ends by `_exit`.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => answer(reply, question),
        child => {
            drop(reply);
            let numbers = listen(&mut reader);
            let child = Pid::from_raw(child).expect("the number of a child is positive");
            if numbers.is_err() {
                // The child has not been reaped, so that the number is still its own.
                let _ = kill_process(child, Signal::KILL);
            }
            // It fails where SIGCHLD is ignored: the child is reaped already.
            let ended = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
            let signal = ended.ok().flatten().and_then(|(_, status)| status.terminating_signal());
            Ok(match numbers {
                Ok(numbers) => Answer { numbers, signal, unanswered: None },
                Err(why) => Answer { unanswered: Some(why.to_string()), ..Answer::default() },
            })
        }
    }
}

fn answer(reply: PipeWriter, question: impl FnOnce(&mut Reply)) -> ! {
    // A killed child leaves no core file, and a killed parent leaves no child.
    // SAFETY: system calls without pointers.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    }
    let mut reply = Reply(reply);
    // A panic must not unwind into the copies of the parent's frames.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| question(&mut reply)));
    // `_exit`, since the exit handlers belong to the parent.
    // SAFETY: a system call without pointers, which does not return.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

/// Reads numbers until the child closes the pipe; fails if it sends nothing for too long.
fn listen(reader: &mut PipeReader) -> io::Result<Vec<i32>> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 512]);
    loop {
        wait_for(reader)?;
        match reader.read(&mut chunk)? {
            0 => break,
            n => bytes.extend_from_slice(&chunk[..n]),
        }
    }
    let whole = bytes.chunks_exact(size_of::<i32>());
    Ok(whole.map(|four| i32::from_ne_bytes(four.try_into().expect("four bytes"))).collect())
}

fn wait_for(reader: &PipeReader) -> io::Result<()> {
    let mut wait = [PollFd::new(reader, PollFlags::IN)];
    for _ in 0..POLLS {
        match poll(&mut wait, Some(&POLL)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("the child does not answer"))
}
