//! Small cases with one question each, put to both programs.

use crate::common::*;
use crate::support::*;
use crate::trees::{mkfifo, set_times};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Makes a few names that most questions need.
fn little(place: &Path) {
    let at = |name: &str| place.join(name);
    fs::write(at("a"), "text of a").unwrap();
    fs::write(at("b"), "another").unwrap();
    fs::write(at("old"), "older").unwrap();
    set_times(&at("old"), 1_000_000_000, 5);
    fs::hard_link(at("a"), at("a2")).unwrap();
    fs::create_dir_all(at("d/sub/deep")).unwrap();
    fs::write(at("d/sub/f"), "f").unwrap();
    fs::write(at("d/a"), "a in d").unwrap();
    fs::create_dir(at("e")).unwrap();
    fs::create_dir(at("locked")).unwrap();
    fs::hard_link(at("d/sub/f"), at("locked/f")).unwrap();
    symlink("a", at("la")).unwrap();
    symlink("d", at("ld")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("../d", at("d/up")).unwrap();
    symlink("loop", at("loop")).unwrap();
    mkfifo(&at("fifo"));
}

const CASES: &[&str] = &[
    "a c",
    "a a",
    "a a2",
    "-f a a2",
    "-f a a",
    "--remove-destination a a2",
    "a la",
    "la a",
    "-P la a",
    "-f la a",
    "la c",
    "-P la c",
    "-d la c",
    "-H ld c",
    "-rH ld c",
    "-rL d c",
    "-RL d c",
    "-rP ld c",
    "-L la c",
    "-r ld c",
    "-r ld/ c",
    "a dangling",
    "-f a dangling",
    "--remove-destination a dangling",
    "dangling c",
    "-P dangling c",
    "-r dangling c",
    "loop c",
    "-P loop c",
    "a loop",
    "-f a loop",
    "-f a loop/",
    "-rf fifo loop/",
    "a b e",
    "a d/a e",
    "a a e",
    "-rT d e",
    "-r d/. e",
    "d e",
    "a d",
    "-T a d",
    "-r d a",
    "-rT d a",
    "a c/",
    "a d/",
    "a nosuch/c",
    "nosuch c",
    "nosuch a e",
    "a b nosuch",
    "-t e a b",
    "-t nosuch a",
    "-t a b",
    "-tea",
    "-te a",
    "--target-directory=e a",
    "--target e a",
    "-T a b c",
    "-T a e -t e",
    "--parents d/sub/f e",
    "--parents -r d e",
    "--parents d/nosuch e",
    "--parents d/sub/f c",
    "-v a c",
    "-v a e",
    "-rv d c",
    "-rv d e",
    "-v a b",
    "-fv a b",
    "-av d c",
    "-pv a c",
    "--parents -v d/sub/f e",
    "--parents -a d/sub/f e",
    "--parents d/sub/../sub/f e",
    "-b a b",
    "-bv a b",
    "--backup=numbered a b",
    "--backup=simple a b",
    "--backup=none a b",
    "--backup=t -v a b",
    "--backup=nil a b",
    "--backup=e a b",
    "-S .bak a b",
    "--suffix=.x a b",
    "-b a a",
    "-fb a a",
    "-f --backup=t a a",
    "-b a a2",
    "-bf a a2",
    "-l a c",
    "-l a b",
    "-lf a b",
    "-s a c",
    "-s a b",
    "-sf a b",
    "-s a e/x",
    "-s d/a e",
    "-rl d c",
    "-l a a2",
    "-l la c",
    "-lP la c",
    "-rs d c",
    "-n a b",
    "-nv a b",
    "-n a c",
    "-u a b",
    "-u old b",
    "-uv old b",
    "-u b old",
    "-u a c",
    "-p a c",
    "-p old c",
    "--preserve=timestamps old c",
    "--preserve=all old c",
    "--preserve old c",
    "--no-preserve=mode a c",
    "--attributes-only a c",
    "--attributes-only a b",
    "--strip-trailing-slashes a/ c",
    "a/ c",
    "--strip-trailing-slashes -r ld/ c",
    "-r fifo c",
    "-a fifo c",
    "-r fifo b",
    "--sparse=always a c",
    "--sparse=never a c",
    "--reflink=auto a c",
    "--reflink=never a c",
    "-x a c",
    "-rx d c",
    "a a2 e",
    "-d a a2 e",
    "-a a a2 e",
    "-l a a2 e",
    "--preserve=links a a2 e",
    "-r d d e",
    "-r d ld e",
    "-rL d ld e",
    "d/a a e",
    "--backup=numbered d/a a e",
    "-a d c",
    "-R d c",
    "--archive d c",
    "--recursive d c",
    "--arch d c",
    "--no-d la c",
    "--der la c",
    "--rec d c",
    "--symbolic a c",
    "--li a c",
    "--rem a b",
    "--str a/ c",
    "--copy-contents a c",
    "--one a c",
    "--no-t a b",
    "--no-c a b",
    "--att a b",
    "-y a b",
    "--pre",
    "--p a",
    "--backup=foo a b",
    "a",
    "",
    "--sparse=x a b",
    "--preserve=foo a b",
    "--reflink=x a b",
    "--no-pres a b",
    "--verbose=3 a b",
    "-r -t",
    "-ls a b",
    "-nb a b --nonsense",
    "--preserve=context a b",
    "--reflink=always --sparse=never a b",
    "-- a c",
    "a -- -r",
    "a -v c",
    "-rf d c",
    "-dpR d c",
    "-Pr d c",
    "-LP la c",
    "-PL la c",
    "/dev/null c",
    "-r /dev/null c",
    "/dev/null b",
    "/proc/self/status/x c",
    "-s /a c",
    "-rT ld e",
    "-aT d ld",
    "-r d/sub la",
    "-i a c",
    "-fi a c",
    "a . b",
    "a ./",
    "a .",
    "-r d .",
    "d/sub/f .",
    "-nu old b",
    "-un old b",
    "-ru d c",
    "-bl a b",
    "-bs a b",
    "-br d e",
    "-vl a c",
    "-vs a c",
    "-vf a dangling",
    "-v nosuch c",
    "-rv d/sub nosuch e",
    "-rL --preserve=links a a2 la e",
    "-rH --preserve=links la a a2 e",
    "-aH la a a2 e",
    "-aL la a a2 e",
    "-aH ld la d e",
    "-aL ld la d/sub e",
    "-dL a a2 la e",
    "-L --preserve=links a la e",
    "-H --preserve=links a la a2 e",
    "a ./a e",
    "-sfR d e",
    "-sf a nosuch/b",
    "-sfv a b",
    "-lfv a b",
    "-lfv a la",
    "-sfv a la",
    "-sf a a",
    "-sf a dangling",
    "-lf a dangling",
    "-lf a a2",
    "-lu old b",
    "-lu a old",
    "-su a old",
    "-fb ./a .",
    "-r d/ d e/x",
    "-R e d/ e .",
    "-r d/sub d e",
    "-r d d/sub e",
    "-r d ./d e",
    "-a ld/ d e",
    "-s d/a new/x",
    "-s a ./d/../x",
    "-n a a",
    "-n a a2",
    "-a d locked e",
    "-a locked d e",
    "-r --preserve=links locked d/sub/f d e",
    "-P --preserve=links a la a2 e",
];

/// Compares what both do with the few names, in memory: ext4 is slow to make files again and again.
fn compare_case(case: &str, answer: &str, compared: Compared) -> String {
    let base = place_in_memory("cp-small");
    let arguments: Vec<_> = case.split_whitespace().collect();
    compare_in(base.path(), None, &arguments, answer.as_bytes(), compared, little)
}

#[test]
fn every_small_case_ends_as_with_gnus() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for case in CASES {
        differences += &compare_case(case, "", Compared::Trees);
    }
    assert_same(differences);
}

/// GNU's reads a status that its failed call has not filled in, so that its messages differ from
/// run to run.
#[test]
fn a_directory_does_not_replace_a_looping_link() {
    let place = place("cp-looping-link");
    little(&place);
    for flags in ["-rf", "-rfT"] {
        let error = "cringle cp: cannot create directory 'loop/': File exists\n";
        let expected = (Some(1), String::new(), error.to_owned());
        assert_eq!(run(&place, &[flags, "d", "loop/"]), expected);
    }
}

/// GNU's enters the directory and copies the files that it finds first, so its trees differ from
/// run to run.
#[test]
fn a_directory_is_not_copied_into_itself() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for case in [
        "-r d d",
        "-r d ./d",
        "-rn d d",
        "-r d ld",
        "-r d d/new",
        "-r d d/sub",
        "-rT d d/sub",
        "-r d/.. e/x",
        "-r . e",
    ] {
        differences += &compare_case(case, "", Compared::Words);
    }
    assert_same(differences);
}

#[test]
fn questions_are_asked_as_by_gnus() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for (case, answer) in [
        ("-i a b", "y\n"),
        ("-i a b", "n\n"),
        ("-i a b", ""),
        ("-iv a b", "yes\n"),
        ("-in a b", ""),
        ("-ni a b", "y\n"),
        ("-i a b e", ""),
        ("-ir d e", "y\n"),
        ("-if a b", "y\n"),
        ("-iu old b", "y\n"),
    ] {
        differences += &compare_case(case, answer, Compared::Trees);
    }
    assert_same(differences);
}

#[test]
fn update_accepts_the_words_of_newer_versions() {
    let place = place("cp-update");
    little(&place);
    let run = |arguments: &[&str]| {
        let mut command = ours();
        command.args(arguments);
        output_of(command, &place, b"")
    };
    assert!(run(&["--update=none", "a", "b"]).status.success());
    assert_eq!(fs::read(place.join("b")).unwrap(), b"another");
    let output = run(&["--update=none-fail", "a", "b"]);
    assert_eq!(
        (output.status.code(), texts(&output).1.as_str()),
        (Some(1), "cringle cp: not replacing 'b'\n")
    );
    assert!(run(&["--update=older", "old", "b"]).status.success());
    assert_eq!(fs::read(place.join("b")).unwrap(), b"another");
    assert!(run(&["--update=all", "old", "b"]).status.success());
    assert_eq!(fs::read(place.join("b")).unwrap(), b"older");
}

#[test]
fn a_link_named_cp_runs_cp() {
    let place = place("cp-called");
    symlink(env!("CARGO_BIN_EXE_cringle"), place.join("cp")).unwrap();
    let output = output_of(Command::new(place.join("cp")), &place, b"");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        texts(&output).1,
        "cp: missing file operand\nTry 'cp --help' for more information.\n"
    );
}
