//! The tools that build what is distributed, in fixed versions, below `target/dist/tools`.

use crate::Result;
use crate::commands::{cargo, output};
use std::path::{Path, PathBuf};
use std::process::Command;

/// From PyPI: a linker for other systems and older glibcs, what makes cargo use it, and the builder
/// of wheels.
const PYTHON: [&str; 3] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1", "maturin==1.16.0"];

/// From crates.io, with features: Debian's packages, lists of dependencies, and their licences.
const CARGO: [(&str, &str, &str); 3] =
    [("cargo-deb", "3.8.0", ""), ("cargo-cyclonedx", "0.5.9", ""), ("cargo-about", "0.9.3", "cli")];

pub(super) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Installs those that are missing.
    pub(super) fn install(work: &Path) -> Result<Tools> {
        let tools = Tools { folder: work.join("tools") };
        let python = tools.folder.join("bin/python");
        if !python.exists() {
            let mut venv = Command::new("python3");
            output(venv.args(["-m", "venv"]).arg(&tools.folder))
                .map_err(|error| format!("{error}\napt-get install python3-venv"))?;
        }
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        output(pip.args(PYTHON))?;
        for (name, version, features) in CARGO {
            println!("installing {name} {version}, unless it is there");
            let mut install = cargo();
            install.args(["install", "--quiet", "--locked", "--version", version, name]);
            output(install.args(["--features", features]).arg("--root").arg(&tools.folder))?;
        }
        for arch in super::Arch::ALL {
            let mut add = Command::new("rustup");
            output(add.args(["target", "add", &arch.musl(), &arch.gnu()]))?;
        }
        Ok(tools)
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// The path in which they come first.
    pub(super) fn path(&self) -> Result<std::ffi::OsString> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let first = [self.folder.join("bin")].into_iter();
        Ok(std::env::join_paths(first.chain(std::env::split_paths(&path)))?)
    }

    /// The versions of all that changes the bytes.
    pub(super) fn versions(&self) -> Result<String> {
        let rustc = output(Command::new("rustc").arg("-V"))?;
        let cargo_tools = CARGO.map(|(name, version, _)| format!("{name}=={version}"));
        Ok(format!("{rustc}{}\n{}\n", PYTHON.join("\n"), cargo_tools.join("\n")))
    }
}
