//! A question that is put in a child process, where an answer that kills is an answer, too.
//!
//! The child is a fork, so that it has this process's filters, limits and namespaces, needs no `/proc`
//! to find its program, and takes with it whatever it made. It writes numbers into a pipe.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// No question takes nearly as long as all looks together; a filter that asks somebody who never answers
/// does. They are counted, and not the time: while a machine is suspended, a child cannot answer.
const LOOKS: u32 = 100;
const LOOK_MS: i32 = 100;

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub numbers: Vec<i32>,
    /// The signal that ended the child.
    pub signal: Option<i32>,
    /// It was given up, or could not even be asked.
    pub unanswered: Option<String>,
}

/// Where the child writes its answer.
pub(crate) struct Reply(File);

impl Reply {
    pub(crate) fn send(&mut self, number: i32) {
        // Nobody who listens any more is nobody to tell it to.
        let _ = self.0.write_all(&number.to_ne_bytes());
    }
}

/// Runs `question` in a child.
///
/// The calling process must have one thread only: `doctor` asks before it starts any.
pub(crate) fn ask_child(question: impl FnOnce(&mut Reply)) -> Answer {
    asked(question).unwrap_or_else(|error| Answer {
        unanswered: Some(format!("no child process could be asked: {error}")),
        ..Answer::default()
    })
}

fn asked(question: impl FnOnce(&mut Reply)) -> io::Result<Answer> {
    let (mut reader, reply) = pipe()?;
    // SAFETY: this process has one thread (what `ask` demands), so that no lock is held by another one
    // in the child, which goes on as this thread does and ends by `_exit`.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => answer(reply, question),
        child => {
            drop(reply);
            let numbers = listen(&mut reader);
            if numbers.is_err() {
                // SAFETY: a plain system call; the child is not reaped yet, so that the number is its.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            let signal = reap(child)?;
            Ok(match numbers {
                Ok(numbers) => Answer { numbers, signal, unanswered: None },
                Err(why) => Answer { unanswered: Some(why.to_string()), ..Answer::default() },
            })
        }
    }
}

fn answer(reply: File, question: impl FnOnce(&mut Reply)) -> ! {
    // SAFETY: plain system calls. No core file is left by a child that is killed, and no child by a
    // parent that is.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    }
    let mut reply = Reply(reply);
    // A panic would unwind into the parent's frames.
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| question(&mut reply)));
    // SAFETY: ends this process at once: handlers of its exit belong to the parent.
    unsafe { libc::_exit(i32::from(asked.is_err())) }
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which is what the call writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    let own = |fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((own(ends[0]), own(ends[1])))
}

/// Everything that is told until the child ends, or an error when it says nothing for too long.
fn listen(reader: &mut File) -> io::Result<Vec<i32>> {
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

fn wait_for(reader: &File) -> io::Result<()> {
    let mut wait = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    for _ in 0..LOOKS {
        // SAFETY: one entry, which outlives the call.
        match unsafe { libc::poll(&mut wait, 1, LOOK_MS) } {
            0 => {}
            1.. => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Err(io::Error::other("the child does not answer"))
}

fn reap(child: libc::pid_t) -> io::Result<Option<i32>> {
    let mut status = 0;
    loop {
        // SAFETY: the status outlives the call, which writes it; the child is ours and not reaped.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return Ok(libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
