//! The `main` that [`main!`](crate::main) defines.

use cringle_run::run::Builder;
use std::panic::catch_unwind;
use std::process::{ExitCode, Termination};

/// The status of a program whose `main` panics.
const PANICKED: u8 = 101;

/// Runs the body of `main` on a fiber.
pub fn run<T: Termination>(builder: Builder, body: fn() -> T) -> ExitCode {
    let on_fiber = || {
        let code = match catch_unwind(body) {
            Ok(value) => value.report(),
            // The panic hook has reported it.
            Err(_) => PANICKED.into(),
        };
        if crate::threads::has_threads() {
            cringle_std::process::exit(number_of(code));
        }
        code
    };
    builder.run(on_fiber).unwrap_or_else(|e| {
        eprintln!("the program's fibers cannot start: {e}");
        ExitCode::FAILURE
    })
}

/// The number of an exit code. Older versions of std can print codes, but not compare them.
fn number_of(code: ExitCode) -> i32 {
    let text = format!("{code:?}");
    let number = (0..=u8::MAX).find(|&number| format!("{:?}", ExitCode::from(number)) == text);
    number.map_or(1, i32::from)
}
