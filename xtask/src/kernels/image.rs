//! Makes the machine's disks: an ext4 file system with the tests, their libraries and an init, and
//! an empty second disk.

use super::steps::Step;
use super::suite::Suite;
use super::tools::{command, libraries};
use super::{Args, partition};
use crate::Result;
use crate::commands::{find, output};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("init.sh");
const WITHOUT_RINGS: &str = include_str!("without-rings.sh");

/// The size of the disk, whose file is sparse.
const DISK_MIB: u32 = 6 << 10;

const DIRECTORIES: [&str; 11] =
    ["bin", "etc", "dev", "proc", "sys", "tmp", "run", "root", "tests", "examples", "plain"];

const FILES: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/nsswitch.conf", "hosts: files\n"),
];

/// Both disks of the machine.
pub(super) struct Disks {
    pub(super) root: PathBuf,
    /// An empty disk, whose device has no poll queue.
    pub(super) plain: PathBuf,
}

/// Makes both disks below `work`.
pub(super) fn make(work: &Path, suite: &Suite, args: &Args) -> Result<Disks> {
    let root = work.join("root");
    for name in DIRECTORIES {
        fs::create_dir_all(root.join(name))?;
    }
    for (name, text) in FILES {
        fs::write(root.join(name), text)?;
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    symlink("../proc/mounts", root.join("etc/mtab"))?;
    programs(&root, suite)?;
    sources(&root, suite)?;
    init(&root, suite, args)?;
    let disks = Disks { root: work.join("root.disk"), plain: work.join("plain.disk") };
    partition::table(&disks.root, DISK_MIB)?;
    let mut filled = command("mkfs.ext4");
    filled.args(["-q", "-F", "-E", &format!("offset={}", partition::START), "-d"]);
    output(filled.arg(&root).arg(&disks.root).arg(format!("{DISK_MIB}M")))?;
    output(command("mkfs.ext4").args(["-q", "-F"]).arg(&disks.plain).arg("256M"))?;
    Ok(disks)
}

fn programs(root: &Path, suite: &Suite) -> Result<()> {
    let busybox = find("busybox").ok_or("busybox: not found")?;
    if !libraries(&busybox)?.is_empty() {
        return Err("busybox is not static: apt-get install busybox-static".into());
    }
    fs::copy(busybox, root.join("bin/busybox"))?;
    symlink("busybox", root.join("bin/sh"))?;
    let mut shared = BTreeSet::new();
    for program in &suite.programs {
        let name = program.file_name().ok_or("a program without a name")?;
        strip(program, &root.join("bin").join(name))?;
        // Tests of the command run it by the path that cargo compiled into them.
        let called = root.join(program.strip_prefix("/")?);
        fs::create_dir_all(called.parent().ok_or("a program in the root")?)?;
        symlink(Path::new("/bin").join(name), called)?;
        shared.extend(libraries(program)?);
    }
    for test in &suite.binaries {
        strip(&test.path, &root.join("tests").join(&test.name))?;
        shared.extend(libraries(&test.path)?);
    }
    for example in &suite.examples {
        let name = example.file_name().ok_or("an example without a name")?;
        // The test binary looks for them beside its own directory.
        strip(example, &root.join("examples").join(name))?;
        shared.extend(libraries(example)?);
    }
    for library in shared {
        let to = root.join(library.strip_prefix("/")?);
        fs::create_dir_all(to.parent().ok_or("a library in the root")?)?;
        fs::copy(library, to)?;
    }
    Ok(())
}

/// Copies a program without its debug information, which is most of its size.
fn strip(from: &Path, to: &Path) -> Result<()> {
    output(command("strip").arg("--strip-debug").arg("-o").arg(to).arg(from)).map(drop)
}

/// Copies the library's packages, in one of which the tests run, and creates the directory for
/// their files. All have the paths that cargo compiled into the tests.
fn sources(root: &Path, suite: &Suite) -> Result<()> {
    let inside = |path: &Path| path.strip_prefix("/").map(|path| root.join(path));
    fs::create_dir_all(inside(&suite.target_directory)?.join("tmp"))?;
    for package in &suite.sources {
        let copy = inside(package)?;
        fs::create_dir_all(copy.parent().ok_or("a package in the root")?)?;
        output(command("cp").arg("-r").arg(package).arg(copy))?;
    }
    Ok(())
}

fn init(root: &Path, suite: &Suite, args: &Args) -> Result<()> {
    let package = quoted(&suite.package.to_string_lossy());
    fs::write(root.join("settings"), format!("BOUND={}\nPACKAGE={package}\n", args.bound))?;
    let line = |step: &Step| {
        format!("{}\t{}\t{}\n", step.name, step.needs.unwrap_or("/"), step.command_line)
    };
    fs::write(root.join("steps"), suite.steps.iter().map(line).collect::<String>())?;
    let command = args.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    if !command.is_empty() {
        fs::write(root.join("command"), command + "\n")?;
    }
    script(&root.join("init"), INIT)?;
    script(&root.join("bin/without-rings"), WITHOUT_RINGS)
}

fn script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Quotes a string as one word of the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
