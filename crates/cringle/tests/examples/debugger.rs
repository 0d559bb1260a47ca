//! gdb and lldb list the fibers of a stopped process as the program's own dump does, and show their
//! stacks; gdb also those of a core file. A test without its debugger prints that; without gdb it
//! fails with `CRINGLE_TOOLS=required`.

mod damaged;

use crate::program;
use cringle::runtime::{self, Dump, FiberReport, FiberState};
use cringle::sync::{Barrier, Mutex, RwLock, Semaphore, mpsc};
use cringle::{Builder, fiber, time};
use cringle_testing::child;
use cringle_testing::tools::{let_others_wait, pipe, tcp_pair};
use std::collections::BTreeSet;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

/// One row of a list: the fiber, its worker, its state, and the object of its wait.
type Row = (String, String, String, String);

/// The rows of the program's own dump.
fn rows_of_dump(dump: &Dump) -> Vec<Row> {
    let row = |fiber: &FiberReport| {
        let (state, what) = match &fiber.state {
            FiberState::Running => ("runs", String::new()),
            FiberState::Ready => ("ready", String::new()),
            FiberState::Waiting { for_what, .. } => ("waits", for_what.to_string()),
            other => unreachable!("{other:?}"),
        };
        (fiber.who.to_string(), fiber.worker.to_string(), state.to_owned(), what)
    };
    dump.fibers.iter().map(row).collect()
}

/// The rows of `cringle fibers`, whose columns are two spaces apart.
fn rows_of(text: &str) -> Vec<Row> {
    let is_head = |line: &&str| !line.starts_with("N  ");
    let lines = text.lines().skip_while(is_head).skip(1);
    let is_row = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
    let row = |line: &str| {
        let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(1);
        let mut next = || cells.next().unwrap_or_default().to_owned();
        let (who, worker, state) = (next(), next(), next());
        let _age = next();
        (who, worker, state, next())
    };
    lines.take_while(is_row).map(row).collect()
}

/// The part of the output behind a line that `echo` printed.
fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let start = text.find(&format!("== {name}\n")).unwrap_or_else(|| panic!("{name}: {text}"));
    let part = &text[start..];
    &part[..part[3..].find("== ").map_or(part.len(), |end| end + 3)]
}

/// Whether gdb with Python is installed.
fn has_gdb() -> bool {
    let mut command = gdb(&["python print(6 * 7)"]);
    let works = command.output().is_ok_and(|output| output.stdout.ends_with(b"42\n"));
    if !works {
        let required = std::env::var("CRINGLE_TOOLS").is_ok_and(|value| value == "required");
        assert!(!required, "gdb with Python is not installed");
        eprintln!("skipped: gdb with Python is not installed");
    }
    works
}

/// Returns gdb with these commands, each with its name before its output.
fn gdb(commands: &[&str]) -> Command {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set auto-load safe-path /"]);
    gdb.args(["-iex", "set debuginfod enabled off", "-iex", "set disable-randomization off"]);
    for command in commands {
        gdb.args(["-ex", &format!("echo == {command}\\n"), "-ex", command]);
    }
    gdb
}

/// Runs the child under a debugger until it stops itself. Returns the debugger's output and the
/// dump that the child has made.
fn run_until_stop(mut debugger: Command, separator: &str, child: &Command) -> (String, String) {
    let dump = tempfile::NamedTempFile::new().unwrap();
    debugger.arg(separator).arg(child.get_program()).args(child.get_args());
    debugger.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let text = output(debugger.env("CRINGLE_TEST_DUMP", dump.path()));
    (text, std::fs::read_to_string(dump.path()).unwrap())
}

fn output(command: &mut Command) -> String {
    let text = child::transcript(&command.output().unwrap());
    assert!(!text.contains("Python Exception") && !text.contains("Traceback"), "{text}");
    text
}

fn named(name: &str) -> fiber::Builder {
    fiber::Builder::new().name(name.into())
}

#[inline(never)]
fn take_both(first: &Mutex<u32>, second: &Mutex<u32>) {
    let _first = first.lock().unwrap();
    fiber::yield_now();
    let _second = second.lock().unwrap();
}

/// Starts fibers in many kinds of waits, calls `f`, and cancels them.
fn with_waiting_fibers(f: impl FnOnce()) {
    let waits = || {
        let (left, right, shared) = (Mutex::new(1), Mutex::new(2), RwLock::new(3));
        let (reader, _writer) = pipe();
        let (ours, _theirs) = tcp_pair();
        let (_sender, receiver) = mpsc::channel::<u32>();
        let (permits, barrier) = (Semaphore::new(0), Barrier::new(2));
        let _read = shared.read().unwrap();
        fiber::scope(|s| {
            named("to the right").spawn_scoped_local(s, || take_both(&left, &right)).unwrap();
            named("to the left").spawn_scoped_local(s, || take_both(&right, &left)).unwrap();
            s.spawn_local(fiber::park);
            named("writer").spawn_scoped_local(s, || drop(shared.write())).unwrap();
            named("permits").spawn_scoped_local(s, || drop(permits.acquire_many(3))).unwrap();
            named("barrier").spawn_scoped_local(s, || barrier.wait().is_leader()).unwrap();
            named("sleeper").spawn_scoped_local(s, || time::sleep(Duration::MAX)).unwrap();
            named("reader").spawn_scoped_local(s, || (&reader).read(&mut [0])).unwrap();
            named("peer").spawn_scoped_local(s, || (&ours).read(&mut [0])).unwrap();
            named("receiver").spawn_scoped_local(s, || receiver.recv().map(drop)).unwrap();
            let joined = named("joined").spawn_scoped_local(s, fiber::park).unwrap();
            named("joins").spawn_scoped_local(s, || drop(joined.join())).unwrap();
            let opens = || fiber::scope(|inner| drop(inner.spawn_local(fiber::park)));
            named("scope").spawn_scoped_local(s, opens).unwrap();
            named("elsewhere").worker(1).spawn_scoped(s, fiber::park).unwrap();
            while !runtime::dump().unwrap().fiber("elsewhere").is_some_and(waits_for_something) {
                fiber::yield_now();
            }
            let_others_wait();
            f();
            s.cancel();
        });
    };
    Builder::new().workers(2).run(waits).unwrap();
}

fn waits_for_something(fiber: &FiberReport) -> bool {
    matches!(fiber.state, FiberState::Waiting { .. })
}

/// Writes the dump of this moment into the file that the environment names, and stops the process.
fn dump_and_stop() {
    let rows = rows_of_dump(&runtime::dump().unwrap());
    let text: Vec<String> = rows.iter().map(|row| format!("{row:?}\n")).collect();
    std::fs::write(std::env::var_os("CRINGLE_TEST_DUMP").unwrap(), text.concat()).unwrap();
    if std::env::var_os("CRINGLE_TEST_ABORT").is_some() {
        std::process::abort();
    }
    // SAFETY: no pointers are passed.
    unsafe { libc::raise(libc::SIGTRAP) };
}

/// The rows of a debugger must be those of the dump, in any order.
#[track_caller]
fn assert_same_rows(text: &str, dump: &str) {
    let rows: BTreeSet<String> = rows_of(text).iter().map(|row| format!("{row:?}")).collect();
    let expected: BTreeSet<String> = dump.lines().map(str::to_owned).collect();
    assert!(expected.len() > 10, "{dump}");
    assert_eq!(rows, expected, "{text}");
}

/// The function that waits must be in the backtrace of its fiber, and no function of another one.
#[track_caller]
fn assert_stack_of_fiber(text: &str) {
    assert!(text.contains("take_both") && text.contains("coroutine_func"), "{text}");
    assert!(!text.contains("dump_and_stop"), "{text}");
    // The announced number is that of the first frame below those of the thread's function.
    let number = text.split_once("its frames begin with #").expect(text).1;
    let number: usize = number.split_once(';').unwrap().0.parse().unwrap();
    let frame = |number: usize| {
        let start = format!("#{number} ");
        text.lines().find(|line| line.starts_with(&start)).expect(text)
    };
    assert!(frame(number).contains("corosensei"), "{number}: {text}");
    assert!(!frame(number - 1).contains("corosensei"), "{number}: {text}");
}

const LISTS: [&str; 4] = ["cringle fibers", "cringle workers", "cringle ops", "cringle locks"];
const STACK: &str = "cringle fiber 'to the left' bt";

#[track_caller]
fn assert_lists_name_what_they_must(text: &str) {
    let workers = part(text, "cringle workers");
    assert!(workers.contains("'main' (0)") && workers.contains("no fiber"), "{workers}");
    let ops = part(text, "cringle ops");
    assert!(ops.contains("'reader'") && ops.contains("a read, fd "), "{ops}");
    let locks = part(text, "cringle locks");
    assert!(locks.contains("which 1 reader hold: 1 waiting"), "{locks}");
    let deadlock = "DEADLOCK: 'to the right', 'to the left': each waits";
    assert!(locks.contains(deadlock), "{locks}");
    assert_stack_of_fiber(part(text, STACK));
}

#[test]
fn gdb_lists_the_fibers_of_the_dump() {
    let name = "gdb_lists_the_fibers_of_the_dump";
    let Some(child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    if !has_gdb() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let core = directory.path().join("core");
    let write_core = format!("cringle core {}", core.display());
    let (select, end) = ("cringle fiber 'to the left'", "cringle fiber off");
    let rest = [STACK, select, "up 14", "info registers rip", end, "bt", &write_core, "kill"];
    let (live, dump) =
        run_until_stop(gdb(&[&["run"], &LISTS[..], &rest].concat()), "--args", &child);
    assert_same_rows(part(&live, "cringle fibers"), &dump);
    assert_lists_name_what_they_must(&live);
    // The selection lasts until it is ended.
    assert!(part(&live, "info registers rip").contains("take_both"), "{live}");
    assert!(part(&live, "bt").contains("dump_and_stop"), "{live}");
    // The stack ends where the fiber began.
    assert!(!part(&live, STACK).contains("switch_and_link"), "{live}");
    let mut dead = gdb(&[&LISTS[..], &[STACK]].concat());
    let dead = output(dead.arg(child.get_program()).arg(&core));
    assert_same_rows(part(&dead, "cringle fibers"), &without_files(&dump));
    assert_lists_name_what_they_must(&dead);
}

/// What a descriptor refers to is not in a core file.
fn without_files(dump: &str) -> String {
    let cut = |line: &str| line.split(" (").next().unwrap().to_owned();
    let row = |row: &str| if row.contains(", fd ") { cut(row) + "\")" } else { row.to_owned() };
    dump.lines().map(|line| row(line) + "\n").collect()
}

/// A program that aborts on a fiber, without a debugger.
#[test]
fn gdb_lists_the_fibers_of_a_kernels_core() {
    let name = "gdb_lists_the_fibers_of_a_kernels_core";
    let Some(mut child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    if !has_gdb() || !child::kernel_writes_cores() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dump = tempfile::NamedTempFile::new().unwrap();
    child.env("CRINGLE_TEST_DUMP", dump.path()).env("CRINGLE_TEST_ABORT", "1");
    let end = child::keep_core(&mut child, directory.path()).output().unwrap();
    let core = child::core_in(directory.path());
    let core = core.unwrap_or_else(|| panic!("no core file: {}", child::transcript(&end)));
    let text = output(gdb(&[&LISTS[..], &[STACK]].concat()).arg(child.get_program()).arg(&core));
    let dump = std::fs::read_to_string(dump.path()).unwrap();
    assert_same_rows(part(&text, "cringle fibers"), &without_files(&dump));
    assert_lists_name_what_they_must(&text);
}

#[test]
fn gdb_lists_the_fibers_of_a_stripped_program() {
    let name = "gdb_lists_the_fibers_of_a_stripped_program";
    let Some(child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    let directory = tempfile::tempdir().unwrap();
    let stripped = directory.path().join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(child.get_program()).status();
    if !has_gdb() || !strip.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: gdb and strip are needed");
    }
    let mut child_of_it = Command::new(&stripped);
    child_of_it.args(child.get_args());
    child_of_it.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let commands = gdb(&["info functions take_both", "run", "cringle fibers", "kill"]);
    let (text, dump) = run_until_stop(commands, "--args", &child_of_it);
    assert!(!part(&text, "info functions take_both").contains("debugger.rs"), "{text}");
    assert_same_rows(part(&text, "cringle fibers"), &dump);
}

/// A library of the test, because the programs of the tests have no variables for debuggers.
const LOCALS: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn has_locals(wait: extern "C" fn()) -> u64 {
    let answer = std::hint::black_box(41) + 1;
    wait();
    std::hint::black_box(answer)
}
"#;

#[test]
fn gdb_shows_the_locals_of_a_fibers_frame() {
    extern "C" fn wait() {
        fiber::park();
    }
    let Some(mut child) = child::command("gdb_shows_the_locals_of_a_fibers_frame") else {
        let path = std::env::var("CRINGLE_TEST_LIBRARY").unwrap();
        let path = std::ffi::CString::new(path).unwrap();
        // SAFETY: by the contract of the library above, whose function has this type.
        let has_locals: extern "C" fn(extern "C" fn()) -> u64 = unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            std::mem::transmute(libc::dlsym(library, c"has_locals".as_ptr()))
        };
        let calls = || {
            drop(named("has locals").spawn_local(move || has_locals(wait)).unwrap());
            let_others_wait();
            dump_and_stop();
        };
        return Builder::new().workers(1).run(calls).unwrap();
    };
    let directory = tempfile::tempdir().unwrap();
    let [source, library] = ["locals.rs", "liblocals.so"].map(|name| directory.path().join(name));
    std::fs::write(&source, LOCALS).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["-g", "--crate-type", "cdylib", "--edition", "2024", "-o"]);
    let compiled = rustc.arg(&library).arg(&source).status();
    if !has_gdb() || !compiled.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: gdb and rustc are needed");
    }
    child.env("CRINGLE_TEST_LIBRARY", &library);
    let commands = [
        "run",
        "cringle fiber 'has locals'",
        "frame function has_locals",
        "info locals",
        "info args",
        "kill",
    ];
    let (text, _) = run_until_stop(gdb(&commands), "--args", &child);
    assert!(part(&text, "info locals").contains("answer = 42\n"), "{text}");
    assert!(part(&text, "info args").contains("wait = 0x"), "{text}");
}

/// The example `faults`, as its user has it: stopped where it makes its own dump, and a core file
/// of that moment.
#[test]
fn gdb_shows_the_faults_of_the_example() {
    if !has_gdb() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let core = directory.path().join("core");
    let write_core = format!("cringle core {}", core.display());
    let example = program::path("faults");
    let source = include_str!("../../examples/faults.rs");
    let line = source.lines().position(|line| line.contains("= runtime::dump()")).unwrap() + 1;
    let stop = format!("break faults.rs:{line}");
    let before = [&*stop, "run"];
    let after = [STACK, &write_core, "delete", "continue"];
    let mut live = gdb(&[&before[..], &LISTS, &after].concat());
    let live = output(live.arg("--args").arg(&example));
    let mut dead = gdb(&[&LISTS[..], &[STACK]].concat());
    let dead = output(dead.arg(&example).arg(&core));
    let dump = part(&live, "continue");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [&live, &dead] {
        let rows = rows_of(part(text, "cringle fibers"));
        assert_eq!(rows.len(), 5, "{text}");
        for (who, worker, state, what) in &rows {
            // The program's own dump, which it has made then, has the same fibers and waits.
            let name = who.split(" (").next().unwrap();
            assert!(dump.contains(name), "{who}: {dump}");
            assert!(words(dump).contains(&words(what)), "{what}: {dump}");
            let runs = ["'main'", "'spinner'"].contains(&name);
            assert_eq!(state == "runs", runs, "{text}");
            assert_eq!(worker == "1", name == "'spinner'", "{text}");
        }
        let deadlock = "DEADLOCK: 'to the right', 'to the left': each waits";
        assert!(part(text, "cringle locks").contains(deadlock), "{text}");
        assert!(part(text, "cringle workers").contains("'spinner'"), "{text}");
        let stack = part(text, STACK);
        assert!(stack.contains(" transfer (") && !stack.contains("spin_loop"), "{text}");
    }
}

#[test]
fn gdb_lists_a_crowd_of_fibers() {
    let count = child::scaled(1_000, 10_000);
    let Some(child) = child::command("gdb_lists_a_crowd_of_fibers") else {
        let crowd = || {
            for n in 0..count {
                let builder = named(&format!("one of many: {n}")).stack_size(16 << 10);
                builder.worker(n % 2).spawn(fiber::park).unwrap();
            }
            let waits = |dump: &Dump| dump.fibers.iter().filter(|f| waits_for_something(f)).count();
            while waits(&runtime::dump().unwrap()) < count {
                fiber::yield_now();
            }
            dump_and_stop();
        };
        return Builder::new().workers(2).run(crowd).unwrap();
    };
    if !has_gdb() {
        return;
    }
    let begin = "python import time; begin = time.monotonic()";
    let end = "python print(f'{time.monotonic() - begin:.1f}')";
    let commands = ["run", begin, "cringle fibers", end, "kill"];
    let (text, dump) = run_until_stop(gdb(&commands), "--args", &child);
    assert_same_rows(part(&text, "cringle fibers"), &dump);
    let seconds = part(&text, end).lines().nth(1).unwrap_or_default();
    eprintln!("gdb has listed {} fibers in {seconds} s", dump.lines().count());
}

#[test]
fn gdb_lists_the_fibers_without_a_ring() {
    let name = "gdb_lists_the_fibers_without_a_ring";
    let Some(mut child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    if !has_gdb() {
        return;
    }
    child.env("CRINGLE_DRIVER", "epoll").env("CRINGLE_BALANCE", "moving");
    child.env("CRINGLE_THREAD_LOCALS", "private");
    let (text, dump) = run_until_stop(gdb(&["run", "cringle fibers", "kill"]), "--args", &child);
    assert_same_rows(part(&text, "cringle fibers"), &dump);
}

/// Returns lldb with these commands; `None` if it is not installed, or without Python.
fn lldb(commands: &[&str]) -> Option<Command> {
    // Debian's lldb looks for its module in a directory that does not exist.
    let modules = "/usr/lib/llvm-14/lib/python3.11/dist-packages";
    let start = || {
        let mut lldb = Command::new("lldb");
        lldb.arg("--batch").env("PYTHONPATH", modules).env("PYTHONDONTWRITEBYTECODE", "1");
        lldb
    };
    let probe = start().args(["-o", "script print(6 * 7)"]).output().ok()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../cringle-run/debugger/cringle_lldb.py");
    let mut lldb = start();
    for command in [&format!("command script import {script}"), "settings set use-color false"]
        .iter()
        .chain(commands)
    {
        lldb.args(["-o", &format!("script print('== {}')", command.replace('\'', "\\'"))]);
        lldb.args(["-o", command, "-k", command]);
    }
    probe.stdout.ends_with(b"42\n").then_some(lldb)
}

#[test]
fn lldb_lists_the_fibers_of_the_dump() {
    let name = "lldb_lists_the_fibers_of_the_dump";
    let Some(child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    let Some(lldb) = lldb(&[&["run"], &LISTS[..], &[STACK, "bt", "kill"]].concat()) else {
        return eprintln!("skipped: lldb with Python is not installed");
    };
    let (text, dump) = run_until_stop(lldb, "--", &child);
    assert_same_rows(part(&text, "cringle fibers"), &dump);
    assert_lists_name_what_they_must(&text);
    assert!(part(&text, "bt").contains("dump_and_stop"), "{text}");
}
