//! The Python package: a wheel for all versions of each C library, and one without a GIL.

use super::Skipped;
use super::arch::Arch;
use super::build::Build;
use crate::Result;
use std::path::Path;

/// The interpreter without a GIL. It has no stable ABI: each version needs a wheel.
const FREE_THREADED: &str = "python3.14t";

pub(super) fn build(build: &Build, arch: Arch, dist: &Path, skipped: &mut Skipped) -> Result<()> {
    let (gnu, musl) = (arch.gnu(), arch.musl());
    let wheels: [(&str, &str, &[&str]); 3] = [
        (&gnu, "manylinux2014", &[]),
        (&gnu, "manylinux2014", &["--interpreter", FREE_THREADED]),
        (&musl, "musllinux_1_2", &[]),
    ];
    for (target, platform, interpreter) in wheels {
        let mut maturin = build.maturin(arch, target == gnu)?;
        maturin.args(["build", "--quiet", "--release", "--locked", "--zig"]);
        maturin.args(["--compatibility", platform, "--target", target]).args(interpreter);
        maturin.args(["--manifest-path", "bindings/python/Cargo.toml", "--out"]).arg(dist);
        build.run(&mut maturin)?;
    }
    if arch.is_native {
        skipped.add("the wheels for musl and without a GIL: built, but no such Python is here");
    }
    Ok(())
}
