//! The programs and libraries of one processor, as an archive and as Debian's packages.

use super::arch::Arch;
use super::tools::Tools;
use super::{crates, fresh, licences, sbom};
use crate::Result;
use crate::commands::{cargo, output};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc with which the libraries run: Rust's own.
pub(super) const GLIBC: &str = "2.17";

/// Where cargo builds, below the sources.
const TARGET: &str = "target/dist/cargo";

/// Where the sources are for what depends on their path: a directory of each Linux.
const FIXED: &str = "/mnt";
/// Runs a command with a directory at another place, which only that command sees.
const INSIDE: &str = "mount --bind \"$1\" \"$2\"; cd \"$2\"; shift 2; exec \"$@\"";

/// Variables of the caller that would change the bytes.
const CHANGING: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_PROFILE_RELEASE_DEBUG",
    "CARGO_PROFILE_RELEASE_LTO",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// How to build from one directory of sources.
pub(super) struct Build<'t> {
    pub(super) sources: PathBuf,
    tools: &'t Tools,
    /// The commit's time, which all files get.
    epoch: String,
    /// Options that replace the paths of the registries' crates.
    remap: String,
}

impl<'t> Build<'t> {
    pub(super) fn new(sources: &Path, tools: &'t Tools) -> Result<Build<'t>> {
        let mut git = Command::new("git");
        let epoch = output(git.args(["log", "-1", "--format=%ct"]).current_dir(sources))?;
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
        let home = home.ok_or("neither CARGO_HOME nor HOME is set")?;
        let mut remap = String::new();
        for registry in fs::read_dir(home.join("registry/src"))? {
            // Each registry has a folder, named after its host.
            remap += &format!(" --remap-path-prefix={}=/crates", registry?.path().display());
        }
        let epoch = epoch.trim().to_owned();
        Ok(Build { sources: sources.to_owned(), tools, epoch, remap })
    }

    /// Where one processor's files are laid out. The manifests name them here.
    fn stage(&self) -> PathBuf {
        self.sources.join("target/dist/stage")
    }

    fn target(&self) -> PathBuf {
        self.sources.join(TARGET)
    }

    /// Cargo, or one of the tools, with options for `rustc`.
    fn with(&self, command: Command, options: &str) -> Command {
        self.below(&self.sources, command, options)
    }

    /// The same, where the sources are at this path.
    fn below(&self, sources: &Path, mut command: Command, options: &str) -> Command {
        CHANGING.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.current_dir(&self.sources).env("SOURCE_DATE_EPOCH", &self.epoch);
        command.env("CARGO_TARGET_DIR", sources.join(TARGET)).env("CARGO_INCREMENTAL", "0");
        let remap = format!("--remap-path-prefix={}=/cringle", sources.display());
        command.env("RUSTFLAGS", format!("{remap}{}{options}", self.remap));
        if let Ok(path) = self.tools.path() {
            command.env("PATH", path);
        }
        command
    }

    pub(super) fn cargo(&self) -> Command {
        self.with(cargo(), "")
    }

    /// An option to link with the unwinder of this processor's glibc, which is libgcc's.
    ///
    /// Zig would link its own. But a thread that ends by `pthread_exit` is unwound by glibc's,
    /// through frames of these libraries.
    fn libgcc(arch: Arch) -> Result<String> {
        Ok(format!(" -Clink-arg={}", arch.libgcc()?.display()))
    }

    /// Maturin, which has cargo link with zig: for an older glibc, or for musl.
    ///
    /// The sources have the same path in each build. From the paths of crates outside of its
    /// workspace, as the library is for the Python package, cargo derives the names of symbols.
    pub(super) fn maturin(&self, arch: Arch, is_for_glibc: bool) -> Result<Command> {
        let options = if is_for_glibc { Self::libgcc(arch)? } else { String::new() };
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-euc", INSIDE, "_"]).arg(&self.sources).arg(FIXED);
        unshare.arg(self.tools.program("maturin"));
        Ok(self.below(Path::new(FIXED), unshare, &options))
    }

    /// Runs a command, and says which.
    pub(super) fn run(&self, command: &mut Command) -> Result<()> {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let program = Path::new(command.get_program()).file_name().unwrap_or_default();
        let line = format!("{} {}", program.display(), words.join(" "));
        println!("{}", line.replace(&format!("{}/", self.sources.display()), ""));
        output(command).map(drop)
    }

    /// Builds the command, the library of `cringle run` and the C library.
    pub(super) fn programs(&self, arch: Arch, dist: &Path) -> Result<()> {
        let stage = self.stage();
        fresh(&stage)?;
        self.command(arch, &stage.join("cringle"))?;
        self.libraries(arch, &stage)?;
        self.archive(arch, dist)?;
        for (package, variant) in
            [("cringle-cli", None), ("cringle-c", None), ("cringle-c", Some("dev"))]
        {
            let mut deb = self.cargo();
            deb.args(["deb", "--quiet", "--no-build", "--no-strip", "--package", package]);
            deb.args(variant.map(|variant| format!("--variant={variant}")));
            let is_library = package == "cringle-c";
            let target = if is_library { arch.gnu() } else { arch.musl() };
            deb.args(is_library.then_some("--multiarch=same"));
            self.run(deb.args(["--target", &target, "--output"]).arg(dist))?;
        }
        sbom::build(self, arch, dist)
    }

    fn command(&self, arch: Arch, stage: &Path) -> Result<()> {
        let target = arch.musl();
        let linker = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
        let mut build = self.cargo();
        build.env(linker, "rust-lld").args(["build", "--release", "--locked", "--quiet"]);
        self.run(build.args(["-p", "cringle-cli", "--target", &target]))?;
        let program = self.target().join(&target).join("release/cringle");
        copy(&program, &stage.join("bin/cringle"))?;
        // The texts are those of the program for this machine, which was built first.
        let native = Arch::ALL.into_iter().find(|arch| arch.is_native).unwrap_or(arch);
        let native = self.target().join(native.musl()).join("release/cringle");
        let share = stage.join("share");
        output(Command::new(&native).args(["man", "--all"]).arg(share.join("man/man1")))?;
        for (shell, file) in [
            ("bash", "bash-completion/completions/cringle"),
            ("zsh", "zsh/vendor-completions/_cringle"),
            ("fish", "fish/vendor_completions.d/cringle.fish"),
        ] {
            let text = output(Command::new(&native).args(["completions", shell]))?;
            write(&share.join(file), &text)?;
        }
        // `cringle doctor` refers to the second.
        let own = ["README.md", "docs/book/src/deploying.md"];
        self.documents(&share.join("doc/cringle"), &own)
    }

    fn documents(&self, folder: &Path, own: &[&str]) -> Result<()> {
        for file in own.iter().chain(&["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]) {
            let name = Path::new(file).file_name().unwrap_or_default();
            copy(&self.sources.join(file), &folder.join(name))?;
        }
        for file in licences::FILES {
            copy(&self.sources.join("dist").join(file), &folder.join(file))?;
        }
        Ok(())
    }

    fn libraries(&self, arch: Arch, stage: &Path) -> Result<()> {
        let version = crates::version(&self.sources)?;
        // Before 1.0 each minor version is another interface, by the rules of cargo.
        let interface = version.rsplit_once('.').map_or(version.as_str(), |it| it.0);
        let soname = format!("libcringle.so.{interface}");
        let link = format!("-Clink-arg=-Wl,-soname,{soname}");
        // Only as libraries for others they are optimised as a whole: as Rust's, too, they are not.
        self.library(arch, "cringle-preload", &["cdylib"], &[])?;
        self.library(arch, "cringle-c", &["cdylib", "staticlib"], &[&link])?;
        let built = self.target().join(arch.gnu()).join("release");
        let preload = "libcringle_preload.so";
        self.strip(&built.join(preload), &stage.join("cringle/lib/cringle").join(preload))?;

        let lib = stage.join("libcringle/lib");
        self.strip(&built.join("libcringle_c.so"), &lib.join(&soname))?;
        symlink(&soname, lib.join("libcringle.so"))?;
        self.strip(&built.join("libcringle_c.a"), &lib.join("libcringle.a"))?;
        let source = self.sources.join("crates/cringle-c");
        let text = fs::read_to_string(source.join("cringle.pc.in"))?;
        let text = text.replace("@VERSION@", &version).replace("@MULTIARCH@", &arch.multiarch());
        write(&lib.join("pkgconfig/cringle.pc"), &text)?;
        let libcringle = stage.join("libcringle");
        copy(&source.join("include/cringle.h"), &libcringle.join("include/cringle.h"))?;
        copy(&source.join("man/cringle.3"), &libcringle.join("share/man/man3/cringle.3"))?;
        self.documents(&libcringle.join("share/doc/libcringle"), &["crates/cringle-c/README.md"])
    }

    fn library(&self, arch: Arch, package: &str, kinds: &[&str], options: &[&str]) -> Result<()> {
        let zigbuild = Command::new(self.tools.program("cargo-zigbuild"));
        let mut build = self.with(zigbuild, &Self::libgcc(arch)?);
        build.args(["rustc", "--release", "--locked", "--quiet", "--lib", "-p", package]);
        build.args(kinds.iter().flat_map(|kind| ["--crate-type", kind]));
        // Zig's own stripping would leave no names for dumps and traces.
        build.env("CARGO_PROFILE_RELEASE_STRIP", "none");
        build.args(["--target", &format!("{}.{GLIBC}", arch.gnu())]);
        self.run(build.arg("--").args(options))
    }

    /// Copies a library without what only a debugger reads.
    fn strip(&self, from: &Path, to: &Path) -> Result<()> {
        create_folder_of(to)?;
        let rustc = |what| output(Command::new("rustc").args(["--print", what]));
        let sysroot = PathBuf::from(rustc("sysroot")?.trim());
        let libraries = PathBuf::from(rustc("target-libdir")?.trim());
        let tool = libraries.with_file_name("bin").join("rust-objcopy");
        let mut strip = Command::new(tool);
        strip.env("LD_LIBRARY_PATH", sysroot.join("lib")).arg("--strip-debug");
        output(strip.arg(from).arg(to)).map(drop)
    }

    fn archive(&self, arch: Arch, dist: &Path) -> Result<()> {
        let version = crates::version(&self.sources)?;
        let name = format!("cringle-{version}-{}-linux", arch.name);
        let mut tar = self.with(Command::new("tar"), "");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+w"]);
        tar.arg(format!("--mtime=@{}", self.epoch));
        tar.arg(format!("--transform=flags=r;s,^cringle,{name},"));
        tar.args(["-I", "gzip -n9", "-cf"]).arg(dist.join(format!("{name}.tar.gz")));
        self.run(tar.arg("-C").arg(self.stage()).arg("cringle"))
    }

    /// The versions that the bytes depend on.
    pub(super) fn built_with(&self) -> Result<String> {
        let mut git = Command::new("git");
        let commit = output(git.args(["rev-parse", "HEAD"]).current_dir(&self.sources))?;
        Ok(format!("commit {commit}SOURCE_DATE_EPOCH={}\n{}", self.epoch, self.tools.versions()?))
    }
}

fn create_folder_of(file: &Path) -> Result<()> {
    Ok(fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    create_folder_of(to)?;
    fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()).into())
}

pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    create_folder_of(file)?;
    Ok(fs::write(file, text)?)
}
