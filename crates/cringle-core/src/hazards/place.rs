//! The place in the program's source at which a fiber waits.
//!
//! It is the place of the innermost frame that is neither the library's nor std's. std gives access
//! to frames only as text. There a place is on a line of its own, and inlined functions have no
//! path:
//!
//! ```text
//!   12:     0x55d3b41c86bd - program::main::{{closure}}::h2bc1a8a9bd0d0b3c
//!                                at /home/me/program/src/main.rs:9:5
//! ```

use cringle_sys::{module_of_library, plainly};
use std::backtrace::Backtrace;

/// The stack that a backtrace may take, with the names of its functions.
pub(super) const STACK_BYTES: usize = 128 << 10;

/// Parts of the paths of other crates whose frames lie between the program and the switch of
/// stacks.
const OTHERS: [&str; 5] = [
    "/library/std/src/",
    "/library/core/src/",
    "/library/alloc/src/",
    "/library/panic_unwind/src/",
    "/corosensei-",
];

/// The place at which the caller calls the library.
#[inline(never)]
pub(super) fn of_caller() -> Option<String> {
    let backtrace = plainly(Backtrace::force_capture);
    first(&backtrace)
}

/// Returns the innermost place of the program; `None` if the program has no line tables.
pub(super) fn first(backtrace: &Backtrace) -> Option<String> {
    // It reads the program's file.
    plainly(|| {
        let text = format!("{backtrace:#}");
        let place = first_in(&text)?;
        let directory = std::env::current_dir().unwrap_or_default().join("");
        let relative = directory.to_str().and_then(|start| place.strip_prefix(start));
        Some(relative.unwrap_or(place).to_owned())
    })
}

fn first_in(text: &str) -> Option<&str> {
    let is_programs = |place: &&str| {
        place.contains(".rs:")
            && module_of_library(place).is_none()
            && !OTHERS.iter().any(|part| place.contains(part))
    };
    // The program's own definition of an interposed function lies between, too.
    let mut function = "";
    let mut places = text.lines().filter_map(|line| {
        let place = line.trim_start().strip_prefix("at ");
        if place.is_none() {
            function = line.rsplit(" - ").next().unwrap_or_default();
        }
        place.filter(|_| !function.starts_with("pthread_"))
    });
    places.find(is_programs)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn innermost_place_of_program_is_found() {
        let text = format!(
            "   0:     0x55d3b41c86bd - std::backtrace::Backtrace::create::h0\n\
             \x20                              at /rustc/1/library/std/src/backtrace.rs:331:13\n\
             \x20  1:     0x55d3b41c86bd - <cringle::fs::File as std::io::Read>::read::h0\n\
             \x20                              at /home/me/{}:1:1\n\
             \x20  2:     0x55d3b41c86bd - read_dir\n\
             \x20                              at /home/me/c.c:3\n\
             \x20  3:     0x55d3b41c86bd - {{closure}}\n\
             \x20                              at /home/me/src/main.rs:9:5\n\
             \x20  4:     0x55d3b41c86bd - program::main::h0\n\
             \x20                              at /home/me/src/main.rs:8:5\n",
            file!(),
        );
        assert_eq!(first_in(&text), Some("/home/me/src/main.rs:9:5"));
        assert_eq!(first_in("   0: 0x7 - <unknown>\n   1: 0x8 - program::main\n"), None);
    }
}
