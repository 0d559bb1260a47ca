//! The processors that Cringle is built for.

use std::path::{Path, PathBuf};

/// One processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arch {
    /// The kernel's and Rust's name.
    pub(super) name: &'static str,
    /// Debian's name.
    pub(super) debian: &'static str,
    /// Whether this machine runs its programs.
    pub(super) is_native: bool,
}

impl Arch {
    pub(super) const ALL: [Arch; 2] = [
        Arch { name: "x86_64", debian: "amd64", is_native: cfg!(target_arch = "x86_64") },
        Arch { name: "aarch64", debian: "arm64", is_native: cfg!(target_arch = "aarch64") },
    ];

    pub(super) fn musl(self) -> String {
        format!("{}-unknown-linux-musl", self.name)
    }

    pub(super) fn gnu(self) -> String {
        format!("{}-unknown-linux-gnu", self.name)
    }

    /// Debian's directory of libraries.
    pub(super) fn multiarch(self) -> String {
        format!("{}-linux-gnu", self.name)
    }

    /// Where the machine has this processor's `libgcc_s`: its own, or that of a cross compiler.
    pub(super) fn libgcc(self) -> Result<PathBuf, String> {
        let multiarch = self.multiarch();
        let places = [format!("/usr/lib/{multiarch}"), format!("/usr/{multiarch}/lib")];
        let mut files = places.iter().map(|place| Path::new(place).join("libgcc_s.so.1"));
        files.find(|file| file.exists()).ok_or_else(|| {
            let package = format!("libgcc-s1-{}-cross", self.debian);
            format!("no libgcc_s.so.1 of {}; apt-get install {package}", self.name)
        })
    }
}
