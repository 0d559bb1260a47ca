//! `cringle doctor --program`, on small programs that the test compiles with `cc`.

use crate::common::*;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const LIBRARY: &str = "
    #include <stdio.h>
    #include <unistd.h>
    #include <sys/socket.h>
    int waits(FILE *from, char *to) {
        return fgets(to, 8, from) != 0 && lockf(0, F_LOCK, 1) && recv(0, to, 8, 0);
    }";
const CALLER: &str = "
    int waits(void *, char *);
    int main(void) { char to[8]; return waits(0, to); }";
/// What `install!` defines, as far as doctor recognises it.
const HOOKS: &str = "
    long read(int a, void *b, long c) { return -1; }
    long write(int a, const void *b, long c) { return -1; }
    long recv(int a, void *b, long c, int d) { return -1; }
    long send(int a, const void *b, long c, int d) { return -1; }
    int connect(int a, const void *b, int c) { return -1; }
    int poll(void *a, long b, int c) { return -1; }
    int nanosleep(const void *a, void *b) { return -1; }";

/// A program and the library that it needs, which is found by the program's RUNPATH.
fn program_with_library(place: &Path, source: &str) -> bool {
    compiled(place, "libwaits.so", LIBRARY, &["-shared", "-fPIC"])
        && compiled(place, "caller", source, &["libwaits.so", "-Wl,-rpath,$ORIGIN"])
}

/// The report as JSON and as text with joined lines, and the exit status, which is 0 or 3.
fn report(place: &Path, program: &str) -> (Value, String, i32) {
    let run = |more: &[&str]| {
        let mut command = cringle(place);
        command.args(["doctor", "--program", program]).args(more).env_remove("LD_LIBRARY_PATH");
        command.output().unwrap()
    };
    let (text, json) = (run(&[]), run(&["--json", "-"]));
    let (status, (out, err)) = (text.status.code().unwrap(), texts(&text));
    assert_eq!((json.status.code(), &*err), (Some(status), ""), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    (serde_json::from_str(&texts(&json).0).unwrap(), words, status)
}

/// The groups of functions without hooks of one object.
fn groups(json: &Value, object: usize) -> Vec<&str> {
    let blocking = json["program"]["objects"][object]["blocking"].as_array().unwrap();
    blocking.iter().map(|calls| calls["group"].as_str().unwrap()).collect()
}

#[test]
fn a_program_without_hooks_is_status_3() {
    let place = place("doctor-program-plain");
    if !program_with_library(&place, CALLER) {
        return;
    }
    let (json, text, status) = report(&place, "caller");
    let program = &json["program"];
    assert_eq!((status, &program["hooks"]["state"]), (3, &"no".into()), "{text}");
    assert_eq!(program["verdict"]["hooks_work"], false);
    assert_eq!(program["c_library"], "glibc");
    assert_eq!(program["private_thread_locals"]["possible"], true);
    assert!(text.contains("Add cringle_interpose::install!(); to its main.rs."), "{text}");
}

#[test]
fn a_library_is_followed_and_its_calls_divided() {
    let place = place("doctor-program-hooked");
    if !program_with_library(&place, &format!("{HOOKS}{CALLER}")) {
        return;
    }
    let (json, text, status) = report(&place, "caller");
    let program = &json["program"];
    assert_eq!((status, &program["hooks"]["state"]), (0, &"yes".into()), "{text}");
    let library = &program["objects"][1];
    assert_eq!(
        (&library["name"], &library["needed_by"]),
        (&"libwaits.so".into(), &"caller".into())
    );
    assert_eq!(library["hooked"], serde_json::json!(["recv"]));
    assert_eq!(groups(&json, 1), ["stdio-reads", "file-locks"]);
    assert_eq!(program["verdict"]["blocking"], serde_json::json!(["libwaits.so"]));
    assert!(text.contains("wait for others libwaits.so locks in libc: lockf"), "{text}");
    assert!(text.contains("usually short libwaits.so stdio reads: fgets"), "{text}");
}

#[test]
fn a_program_that_defines_some_functions_has_no_hooks() {
    let place = place("doctor-program-partly");
    let source = "#include <unistd.h>\nlong read(int a, void *b, unsigned long c) { return -1; }\n\
                  int main(void) { char c; return read(0, &c, 1); }";
    if !compiled(&place, "partly", source, &[]) {
        return;
    }
    let (json, text, status) = report(&place, "partly");
    assert_eq!((status, &json["program"]["hooks"]["state"]), (3, &"partly".into()), "{text}");
    assert_eq!(json["program"]["hooks"]["defined"], serde_json::json!(["read"]));
}

#[test]
fn a_static_program_is_refused_with_its_reason() {
    let place = place("doctor-program-static");
    if !compiled(&place, "still", "int main(void) { return 0; }", &["-static"]) {
        return;
    }
    let (json, text, status) = report(&place, "still");
    let program = &json["program"];
    assert_eq!((status, &program["linked"]), (3, &"statically".into()), "{text}");
    assert_eq!(program["c_library"], "glibc");
    assert_eq!(program["private_thread_locals"]["possible"], false);
    assert!(text.contains("which no hook reaches"), "{text}");
}

#[test]
fn a_program_with_musls_linker_is_refused() {
    let place = place("doctor-program-musl");
    let linker = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    if !compiled(&place, "small", "int main(void) { return 0; }", &[linker]) {
        return;
    }
    let (json, text, status) = report(&place, "small");
    assert_eq!((status, &json["program"]["c_library"]), (3, &"musl".into()), "{text}");
    assert_eq!(json["program"]["private_thread_locals"]["possible"], false);
}

#[test]
fn a_static_program_has_the_calls_of_its_symbols() {
    let place = place("doctor-program-symbols");
    let source = format!("{LIBRARY}int main(void) {{ char to[8]; return waits(stdin, to); }}");
    if !compiled(&place, "still", &source, &["-static"]) {
        return;
    }
    let (json, text, status) = report(&place, "still");
    assert_eq!((status, json["program"]["verdict"]["blocking"][0].as_str()), (3, Some("still")));
    assert!(text.contains("wait for others still locks in libc: lockf"), "{text}");
    assert!(text.contains("Calls that hooks would cover still"), "{text}");
    assert!(json["program"]["objects"][0]["hooked"].as_array().unwrap().contains(&"recv".into()));
    assert!(text.contains("some functions are called only by libc itself"), "{text}");
    assert_eq!(json["program"]["objects"][0]["loads_libraries"], false);
    assert!(compiled(&place, "still", &source, &["-static", "-s"]));
    let (json, text, status) = report(&place, "still");
    assert_eq!((status, groups(&json, 0).len()), (3, 0), "{text}");
    assert!(text.contains("nothing can be known of its calls: build it without"), "{text}");
    assert!(!text.contains("no waiting calls"), "{text}");
}

#[test]
fn the_report_names_what_it_cannot_see() {
    let place = place("doctor-program-unseen");
    let source = "
        int main(void) {
        #if defined(__x86_64__)
            long number = 34; /* pause */
            asm volatile(\"syscall\" : \"+a\"(number) : : \"rcx\", \"r11\", \"memory\");
        #endif
            return 0;
        }";
    if !compiled(&place, "unseen", &format!("{HOOKS}{source}"), &[]) {
        return;
    }
    let (json, text, status) = report(&place, "unseen");
    assert_eq!((status, groups(&json, 0).len()), (0, 0), "{text}");
    assert!(text.contains("not seen system calls that code makes by an instruction"), "{text}");
    assert!(text.contains("Hooks cover each call of libc that waits."), "{text}");
}

#[test]
fn go_and_other_allocators_are_recognised() {
    let place = place("doctor-program-go");
    let source = "
        __attribute__((section(\".go.buildinfo\"))) int info = 1;
        int je_mallctl(void) { return 0; }
        int main(void) { return info; }";
    if !compiled(&place, "go", source, &[]) {
        return;
    }
    let (json, text, _) = report(&place, "go");
    let program = &json["program"];
    assert_eq!(
        (&program["objects"][0]["go"], &program["allocator"]),
        (&true.into(), &"jemalloc".into())
    );
    assert!(text.contains("Go: it makes its system calls itself"), "{text}");
    assert!(text.contains("jemalloc: each fiber has a cache of its own"), "{text}");
}

#[test]
fn a_library_is_examined_as_one() {
    let place = place("doctor-program-library");
    if !compiled(&place, "libwaits.so", LIBRARY, &["-shared", "-fPIC"]) {
        return;
    }
    let (json, text, status) = report(&place, "libwaits.so");
    assert_eq!((status, &json["program"]["kind"]), (0, &"library".into()), "{text}");
    assert_eq!(json["program"]["verdict"]["hooks_work"], Value::Null);
    assert_eq!(groups(&json, 0), ["stdio-reads", "file-locks"]);
}

#[test]
fn a_missing_library_is_named() {
    let place = place("doctor-program-missing");
    if !program_with_library(&place, CALLER) {
        return;
    }
    std::fs::remove_file(place.join("libwaits.so")).unwrap();
    let (json, text, _) = report(&place, "caller");
    let missing = serde_json::json!([{"name": "libwaits.so", "needed_by": "caller"}]);
    assert_eq!(json["program"]["not_found"], missing);
    assert!(text.contains("not found libwaits.so, needed by caller"), "{text}");
}

#[test]
fn other_files_are_refused_with_words() {
    let place = place("doctor-program-refused");
    let write = |name: &str, content: &[u8]| std::fs::write(place.join(name), content).unwrap();
    write("text", b"no program");
    write("empty", b"");
    write("damaged", &[b"\x7fELF\x02\x01\x01" as &[u8], &[0; 40]].concat());
    let header = |bits: u8, kind: u8, machine: u8| {
        let start = [0x7f, b'E', b'L', b'F', bits, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        [&start as &[u8], &[kind, 0, machine, 0, 1, 0, 0, 0], &[0; 40]].concat()
    };
    let (program, object) = (2, 1);
    write("bits32", &header(1, program, 3));
    write("arm", &header(2, program, 40));
    write("bare", &header(2, program, 62));
    write("unlinked", &header(2, object, 62));
    // The headers of its sections are beyond its end.
    let mut beyond = header(2, program, 62);
    beyond[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
    (beyond[0x34], beyond[0x3a], beyond[0x3c]) = (64, 64, 9);
    write("beyond", &beyond);
    write("huge", &beyond);
    std::fs::File::options()
        .write(true)
        .open(place.join("huge"))
        .unwrap()
        .set_len(1 << 33)
        .unwrap();
    assert!(Command::new("mkfifo").arg(place.join("fifo")).status().unwrap().success());
    for (program, why) in [
        ("absent", "absent: cannot open it: No such file"),
        ("text", "text: it is not a 64-bit ELF file; give a program or a shared library"),
        ("damaged", "damaged: it is not a 64-bit ELF file"),
        ("empty", "empty: it is not a 64-bit ELF file"),
        ("bits32", "bits32: it is not a 64-bit ELF file"),
        ("arm", "arm: its architecture (40) is not x86-64 or aarch64"),
        ("bare", "bare: cannot read it: it has no section headers, which name its imports"),
        ("unlinked", "unlinked: it is an object file; give a linked program"),
        ("beyond", "beyond: cannot read it: Invalid ELF section header offset"),
        ("huge", "huge: it is larger than 4 GiB; remove its debug information (strip -g)"),
        ("fifo", "fifo: it is not a file"),
        (".", ".: it is not a file; give a program or a shared library"),
    ] {
        let output = cringle(&place).args(["doctor", "--program", program]).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{program}: {err}");
        assert!(err.contains(why), "{program}: {err}");
    }
    for more in [&["."][..], &["--no-measure"], &["--seconds", "1"]] {
        let output =
            cringle(&place).args(["doctor", "--program", "text"]).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
}

#[test]
fn the_page_documents_each_key_of_a_program() {
    let place = place("doctor-program-shape");
    if !compiled(&place, "libwaits.so", LIBRARY, &["-shared", "-fPIC"]) {
        return;
    }
    let (json, ..) = report(&place, "libwaits.so");
    let page = include_str!("../../../../../docs/book/src/command/doctor.md");
    let program = &json["program"];
    let parts = [program, &program["hooks"], &program["private_thread_locals"]];
    let rest = [&program["objects"][0], &program["objects"][0]["blocking"][0], &program["verdict"]];
    for key in parts.iter().chain(&rest).flat_map(|part| part.as_object().unwrap().keys()) {
        assert!(page.contains(&format!("`{key}`")), "the page of doctor does not mention {key}");
    }
    for group in [0, 1].map(|index| &program["objects"][0]["blocking"][index]["group"]) {
        let group = group.as_str().unwrap();
        assert!(page.contains(&format!("`{group}`")), "the page does not mention {group}");
    }
}
