//! Runs GNU's `cp` with another order of directory entries.
//!
//! GNU's sorts the names of a directory by the inode numbers that the listing reports. A preloaded
//! library reports random numbers instead, which depend on a seed, the name and the number of
//! directories listed before. So all orders of the names are equally likely, even those that inode
//! numbers cannot give: the names of one file have the same number, and so follow each other.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>

struct dirent *readdir(DIR *listed) {
    static struct dirent *(*real)(DIR *);
    static DIR *last;
    static unsigned long long count;
    const char *seed = getenv("CRINGLE_ORDER");
    if (!real) real = (struct dirent *(*)(DIR *))dlsym(RTLD_NEXT, "readdir");
    struct dirent *found = real(listed);
    if (listed != last) count++;
    last = found ? listed : 0;
    if (!found || !seed) return found;
    unsigned long long number = strtoull(seed, 0, 10) * 1000 + count;
    for (const char *at = found->d_name; *at; at++) {
        number = (number ^ (unsigned char)*at) * 0x9E3779B97F4A7C15ull;
        number ^= number >> 29;
    }
    found->d_ino = number | 1;
    return found;
}
"#;

/// Compiles the library into this place; returns `None`, and prints why, without a C compiler.
pub(crate) fn library(place: &Path) -> Option<PathBuf> {
    let (source, library) = (place.join("order.c"), place.join("order.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).args([&library, &source]);
    let compiled = compiler.arg("-ldl").status().is_ok_and(|status| status.success());
    if !compiled {
        eprintln!(
            "skipped: no C compiler (cc), so GNU's lists directories in the order of inodes alone"
        );
    }
    compiled.then_some(library)
}

/// Makes this command list directories in the order of this seed.
pub(crate) fn set(command: &mut Command, library: &Path, seed: u64) {
    command.env("LD_PRELOAD", library).env("CRINGLE_ORDER", OsStr::new(&seed.to_string()));
}
