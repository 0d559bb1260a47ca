//! The runtime of a program that knows nothing of it: it starts with the program's first thread.

/// Makes each thread that this program creates from now on a fiber.
pub extern "C" fn serve_program() {}
