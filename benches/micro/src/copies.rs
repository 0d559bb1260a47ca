//! Copies of small files by all cores: plain calls, linked chains of a bare ring, and fibers.
//!
//! The ring has an op for each step, but ext4 cannot create or write a file without waiting, so
//! kernel threads perform these ops. This benchmark shows the cost of that where no op waits for
//! the disk.

use crate::report::{Contest, Report};
use io_uring::types::{DestinationSlot, Fd, Fixed};
use io_uring::{IoUring, opcode, squeue};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

const DIRECTORIES: usize = 64;
const FILES: usize = 8192;
const BYTES: usize = 4096;
/// Files in flight on each core, for the ring and for fibers.
const DEPTH: usize = 32;

pub(crate) fn run(rounds: usize, directory: &Path) -> Report {
    let trees = Trees::new(directory);
    let (plain, chains, fibers) =
        ("plain calls", "bare ring: chains of 6 linked ops", "cringle::fs on fibers");
    let mut targets = (0..).map(|n| trees.0.join(format!("copy{n}")));
    let mut timed = |copy: &dyn Fn(&[Job])| {
        let jobs = trees.jobs(&targets.next().expect("endless"));
        let begin = Instant::now();
        copy(&jobs);
        let nanoseconds = begin.elapsed().as_nanos() as f64 / FILES as f64;
        check(&jobs);
        nanoseconds
    };
    let timed = std::cell::RefCell::new(&mut timed);
    Contest::new("a file of 4 KiB copied, by all cores")
        .side(plain, || timed.borrow_mut()(&on_threads(copy_plainly)))
        .side(chains, || timed.borrow_mut()(&on_threads(copy_by_chains)))
        .side(fibers, || timed.borrow_mut()(&copy_on_fibers))
        .run(rounds)
        .ratio(chains, &[plain], None)
        .ratio(fibers, &[plain], None)
}

struct Job {
    from: PathBuf,
    to: PathBuf,
}

/// The directory of the source and its copies. All are removed at the end, because ext4 creates
/// files slowly soon after others were deleted.
struct Trees(PathBuf);

impl Trees {
    fn new(directory: &Path) -> Trees {
        let trees = Trees(directory.join(format!("cringle-micro-{}", std::process::id())));
        for job in trees.jobs(&trees.0.join("source")) {
            fs::write(job.to, [1; BYTES]).expect("a file can be created");
        }
        trees
    }

    /// Creates the directories of a target, and returns the copies to make.
    fn jobs(&self, target: &Path) -> Vec<Job> {
        let source = self.0.join("source");
        for n in 0..DIRECTORIES {
            fs::create_dir_all(target.join(n.to_string())).expect("a directory can be created");
        }
        let job = |n: usize| {
            let name = format!("{}/{n}", n * DIRECTORIES / FILES);
            Job { from: source.join(&name), to: target.join(name) }
        };
        (0..FILES).map(job).collect()
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

fn check(jobs: &[Job]) {
    for job in jobs {
        assert_eq!(fs::read(&job.to).expect("the copy exists"), [1; BYTES], "{}", job.to.display());
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

fn on_threads(copy: fn(&[Job])) -> impl Fn(&[Job]) {
    move |jobs| {
        thread::scope(|scope| {
            for part in jobs.chunks(jobs.len().div_ceil(cores())) {
                scope.spawn(move || copy(part));
            }
        });
    }
}

fn copy_plainly(jobs: &[Job]) {
    let mut buffer = [0; BYTES];
    for job in jobs {
        fs::File::open(&job.from).and_then(|mut file| file.read_exact(&mut buffer)).expect("reads");
        fs::File::create_new(&job.to).and_then(|mut file| file.write_all(&buffer)).expect("writes");
    }
}

fn copy_on_fibers(jobs: &[Job]) {
    use cringle::fs::File;
    let runtime = cringle::Builder::new().workers(cores());
    runtime
        .run(|| {
            cringle::fiber::scope(|scope| {
                for part in jobs.chunks(jobs.len().div_ceil(cores() * DEPTH)) {
                    scope.spawn(move || {
                        let mut buffer = [0; BYTES];
                        for job in part {
                            let from = File::open(&job.from);
                            from.and_then(|mut f| f.read_exact(&mut buffer)).expect("reads");
                            let to = File::create_new(&job.to);
                            to.and_then(|mut f| f.write_all(&buffer)).expect("writes");
                        }
                    });
                }
            });
        })
        .expect("a runtime starts");
}

/// Copies each file by one chain: open, read, close, open, write, close, with two slots of the
/// ring's file table. Only the last op posts a completion.
fn copy_by_chains(jobs: &[Job]) {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(8 * DEPTH as u32)
        .expect("a ring");
    ring.submitter().register_files_sparse(2 * DEPTH as u32).expect("a table of files");
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no zero bytes");
    let paths: Vec<_> = jobs.iter().map(|job| (path(&job.from), path(&job.to))).collect();
    let mut buffers = vec![[0; BYTES]; DEPTH];
    let (mut next, mut done) = (0, 0);
    let mut free: Vec<usize> = (0..DEPTH).collect();
    while done < jobs.len() {
        while next < jobs.len()
            && let Some(slot) = free.pop()
        {
            let chain = chain(&paths[next], slot, &mut buffers[slot]);
            // SAFETY: the paths and buffers outlive the ops, because the loop ends after all ops,
            // and a panic ends the process.
            unsafe { ring.submission().push_multiple(&chain) }.expect("room for each chain");
            next += 1;
        }
        ring.submit_and_wait(1).expect("the ring works");
        for completion in ring.completion() {
            assert_eq!(completion.result(), 0, "step {}", completion.user_data() >> 32);
            free.push(completion.user_data() as u32 as usize);
            done += 1;
        }
    }
}

fn chain(
    (from, to): &(CString, CString),
    slot: usize,
    buffer: &mut [u8; BYTES],
) -> [squeue::Entry; 6] {
    let (source, target) = (2 * slot as u32, 2 * slot as u32 + 1);
    let destination =
        |index| Some(DestinationSlot::try_from_slot_target(index).expect("a small number"));
    let cwd = Fd(libc::AT_FDCWD);
    let create = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let ops = [
        opcode::OpenAt::new(cwd, from.as_ptr())
            .flags(libc::O_RDONLY)
            .file_index(destination(source))
            .build(),
        opcode::Read::new(Fixed(source), buffer.as_mut_ptr(), BYTES as u32).build(),
        opcode::Close::new(Fixed(source)).build(),
        opcode::OpenAt::new(cwd, to.as_ptr())
            .flags(create)
            .mode(0o644)
            .file_index(destination(target))
            .build(),
        opcode::Write::new(Fixed(target), buffer.as_ptr(), BYTES as u32).build(),
        opcode::Close::new(Fixed(target)).build(),
    ];
    let mut step = 0;
    ops.map(|op| {
        step += 1;
        let op = op.user_data((step as u64) << 32 | slot as u64);
        match step {
            6 => op,
            _ => op.flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS),
        }
    })
}
