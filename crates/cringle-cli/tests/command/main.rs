//! What all commands have in common, and the commands without a test program of their own:
//! `doctor`, `run`, `sim` and `trace`. Also the pages of `--html` in a real browser.

#[path = "../common/mod.rs"]
mod common;

mod all_commands;
mod browser;
mod doctor;
#[cfg(target_env = "gnu")]
mod run;
mod sim;
mod trace;
