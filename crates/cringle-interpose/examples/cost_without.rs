//! The read of `cost thread` in a program that interposes nothing.

#[path = "cost/thread.rs"]
mod thread;

fn main() -> std::io::Result<()> {
    thread::print()
}
