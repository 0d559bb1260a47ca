//! Runs a test in a child process, so that a system call that kills its caller is a result too.
//!
//! The child is a fork: it has this process's filters, limits and namespaces, needs no `/proc` to
//! find its program, and releases everything it made when it ends. It sends its result as numbers
//! through a pipe.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The number and the length of the polls for a result, after which the child is killed. No test
/// takes nearly as long, unless a seccomp filter waits for a supervisor that never answers. Polls
/// are counted instead of time, because the child makes no progress while the machine is suspended.
const POLLS: u32 = 100;
const POLL_MS: i32 = 100;

/// The result of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub numbers: Vec<i32>,
    /// The signal that ended the child.
    pub signal: Option<i32>,
    /// Why there is no result: the child did not start, or sent nothing for too long.
    pub unanswered: Option<String>,
}

/// The child's end of the pipe.
pub(crate) struct Reply(File);

impl Reply {
    pub(crate) fn send(&mut self, number: i32) {
        // An error means that the parent is gone, and needs no result.
        let _ = self.0.write_all(&number.to_ne_bytes());
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
    let (mut reader, reply) = pipe()?;
    // SAFETY: this process has one thread (the requirement of `ask_child`), so that no lock is held
    // by a thread that the child lacks. The child continues as this thread and ends by `_exit`.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => answer(reply, question),
        child => {
            drop(reply);
            let numbers = listen(&mut reader);
            if numbers.is_err() {
                // SAFETY: a system call without pointers. The child has not been reaped, so that
                // the number is still its own.
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

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the call writes two descriptors, for which `ends` has room.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are newly opened, and this is their only owner.
    let own = |fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((own(ends[0]), own(ends[1])))
}

/// Reads numbers until the child closes the pipe; fails if it sends nothing for too long.
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
    for _ in 0..POLLS {
        // SAFETY: the array has one entry, which outlives the call.
        match unsafe { libc::poll(&mut wait, 1, POLL_MS) } {
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
        // SAFETY: the call writes only `status`, which outlives it.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return Ok(libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
