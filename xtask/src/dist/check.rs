//! Installs each artefact where it will be used, and uses it.

use super::arch::Arch;
use super::root::{Root, last_line, unpacked};
use super::{Skipped, fresh, sums};
use crate::Result;
use crate::commands::{find, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian 12 and 13.
const SUITES: [&str; 2] = ["bookworm", "trixie"];
/// What each script begins with, what uses the command that `$1` names, and what reads with the
/// Python package.
const BARE: &str = include_str!("on/bare.sh");
const COMMAND: &str = include_str!("on/command.sh");
const READ: &str = include_str!("on/read.py");

/// The programs of a machine that can do it, with Debian's packages.
const NEEDED: [(&str, &str); 4] = [
    ("debootstrap", "debootstrap"),
    ("cc", "gcc libc6-dev"),
    ("pkg-config", "pkg-config"),
    ("dpkg-deb", "dpkg"),
];

/// Returns whether all that could be checked works.
pub(super) fn all(dist: &Path, work: &Path, skipped: &mut Skipped) -> Result<bool> {
    let mut sums = Command::new("sha256sum");
    output(sums.args(["--quiet", "--check", "SHA256SUMS"]).current_dir(dist))?;
    let roots = work.join("roots");
    fs::create_dir_all(&roots)?;
    let mut works = true;
    match missing() {
        Some(why) => skipped.add(format!("the artefacts were not installed on Debian: {why}")),
        None => works &= on_debian(dist, work, &roots)?,
    }
    works &= emulated(dist, &roots, skipped)?;
    Ok(works & names_no_place(dist)?)
}

fn missing() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the scripts are for x86-64".into());
    }
    if let Some((tool, package)) = NEEDED.iter().find(|(tool, _)| find(tool).is_none()) {
        return Some(format!("{tool} is missing; apt-get install {package}"));
    }
    let mounts = output(Command::new("unshare").args(["--mount", "--net", "true"]));
    mounts.is_err().then(|| "debootstrap and mounts need root".into())
}

fn on_debian(dist: &Path, work: &Path, roots: &Path) -> Result<bool> {
    let depends = include_str!("on/depends.sh");
    output(Command::new("sh").args(["-euc", depends, "_"]).arg(dist))?;
    // The scripts see one directory; the programs are removed from it again.
    let programs = dist.join(".programs");
    c_programs(dist, &work.join("c"), &programs)?;
    let wheel =
        format!("{}/tmp/venv/bin/python - <<'PYTHON'\n{READ}PYTHON\n", include_str!("on/wheel.sh"));
    let scripts = [
        ("cringle.deb", format!("{}{COMMAND}", include_str!("on/deb.sh"))),
        ("archive", format!("{}{COMMAND}", include_str!("on/archive.sh"))),
        ("wheel", wheel),
        ("libcringle.deb", include_str!("on/library.sh").into()),
    ];
    let mut works = true;
    for suite in SUITES {
        let root = Root::new(suite, roots)?;
        for (name, script) in &scripts {
            match root.run(&format!("{BARE}{script}"), dist) {
                Ok((said, took)) => {
                    println!("{name} on {}: {:.1} s: {said}", root.suite, took.as_secs_f64());
                }
                Err(error) => {
                    works = false;
                    println!("{name} on {}: FAILED: {error}", root.suite);
                }
            }
        }
    }
    fs::remove_dir_all(programs)?;
    Ok(works)
}

/// Compiles the book's first program with what is in the C library's packages.
fn c_programs(dist: &Path, work: &Path, programs: &Path) -> Result<()> {
    let root = work.join("root");
    fresh(work)?;
    fresh(programs)?;
    let debian = Arch::ALL[0].debian;
    for package in packages(dist, "libcringle", debian)? {
        output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    }
    let page = fs::read_to_string(crate::root().join("docs/book/src/c.md"))?;
    let program = page.split("```c\n").nth(1).and_then(|rest| rest.split("\n```").next());
    let source = work.join("program.c");
    fs::write(&source, program.ok_or("docs/book/src/c.md has no program")?)?;
    let compile = "cc $3 \"$1\" $(pkg-config $4 --cflags --libs cringle) -o \"$2\"";
    let lib = root.join("usr/lib").join(Arch::ALL[0].multiarch());
    for (kind, option, libraries) in
        [("shared", "", ""), ("whole", "-static", "--static"), ("static", "", "--static")]
    {
        if kind == "static" {
            // Otherwise the linker takes the shared one.
            fs::remove_file(lib.join("libcringle.so"))?;
        }
        let mut cc = Command::new("sh");
        cc.args(["-euc", compile, "_"]).arg(&source).arg(programs.join(kind));
        cc.args([option, libraries]);
        cc.env("PKG_CONFIG_LIBDIR", lib.join("pkgconfig"));
        output(cc.env("PKG_CONFIG_SYSROOT_DIR", &root))?;
    }
    Ok(())
}

/// The packages whose names begin so.
fn packages(dist: &Path, begin: &str, debian: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dist)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(begin) && name.ends_with(&format!("_{debian}.deb")) {
            found.push(path.clone());
        }
    }
    if found.is_empty() {
        return Err(format!("{}: no {begin}*_{debian}.deb", dist.display()).into());
    }
    Ok(found)
}

/// Runs aarch64's artefacts under QEMU, which has no `io_uring`: so they fall back to epoll.
fn emulated(dist: &Path, roots: &Path, skipped: &mut Skipped) -> Result<bool> {
    let Some(qemu) = find("qemu-aarch64-static") else {
        skipped.add("aarch64: qemu-aarch64-static is missing; apt-get install qemu-user-static");
        return Ok(true);
    };
    let work = tempfile::tempdir()?;
    let tar = "tar -C \"$1\" --strip-components=1 -xf \"$2\"/cringle-*-aarch64-linux.tar.gz";
    output(Command::new("sh").args(["-euc", tar, "_"]).arg(work.path()).arg(dist))?;
    let cringle = work.path().join("bin/cringle");
    let version = output(Command::new(&qemu).arg(&cringle).arg("--version"))?;
    let (from, to) = (crate::root().join("docs"), work.path().join("copy"));
    output(Command::new(&qemu).arg(&cringle).args(["cp", "-a"]).arg(&from).arg(&to))?;
    output(Command::new("diff").arg("-r").arg(&from).arg(&to))?;
    println!("aarch64, emulated, on epoll: {}: cp -a made the same copy", version.trim());
    skipped.add("aarch64: a ring, and `run`: the emulator has no io_uring");
    if find("debootstrap").is_none() {
        skipped.add("aarch64: the wheel: debootstrap is missing; apt-get install debootstrap");
        return Ok(true);
    }
    let root = unpacked("arm64", roots)?;
    let site = work.path().join("site");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links"]);
    pip.arg(dist).args(["--platform", "manylinux2014_aarch64", "--only-binary", ":all:"]);
    pip.args(["--python-version", "3.11", "--implementation", "cp", "--abi", "abi3"]);
    output(pip.arg("--target").arg(&site).arg("cringle"))?;
    let mut python = Command::new(&qemu);
    python.arg("-L").arg(&root).arg(root.join("usr/bin/python3.11"));
    python.env("PYTHONHOME", root.join("usr")).env("PYTHONPATH", &site);
    println!("aarch64, emulated: wheel: {}", last_line(&output(python.args(["-c", READ]))?));
    Ok(true)
}

/// Returns whether no path of this machine is in what is distributed.
fn names_no_place(dist: &Path) -> Result<bool> {
    let home = std::env::home_dir().unwrap_or_default();
    let paths = [crate::root().canonicalize()?, home.join(".cargo"), home.join(".rustup")];
    let work = tempfile::tempdir()?;
    for line in sums::read(dist)? {
        let name = line.split_once("  ").map_or("", |it| it.1);
        let unpack = "mkdir -p \"$2\"; case \"$1\" in *.tar.gz | *.crate) tar -C \"$2\" -xf \"$1\" ;; \
                      *.deb) dpkg-deb -x \"$1\" \"$2\" ;; *.whl) python3 -m zipfile -e \"$1\" \"$2\" ;; \
                      *) cp \"$1\" \"$2\" ;; esac";
        let mut sh = Command::new("sh");
        sh.args(["-euc", unpack, "_"]).arg(dist.join(name));
        output(sh.arg(work.path().join(name.replace('/', "_"))))?;
    }
    let mut grep = Command::new("grep");
    grep.arg("-rlaF").args(paths.iter().flat_map(|path| [Path::new("-e"), path]));
    let found = grep.arg(".").current_dir(work.path()).output()?;
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    if !found.is_empty() {
        println!("paths of this machine are in:\n{found}");
    }
    Ok(found.is_empty())
}
