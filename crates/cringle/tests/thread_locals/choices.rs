//! What a runtime uses by default, and who may choose otherwise.

use cringle::Builder;
use cringle::runtime::{self, Balance, ThreadLocals};
use cringle_testing::child;
use std::io;

use Balance::{Fixed, Moving};
use ThreadLocals::{Private, Shared};

/// The choices of the program, of the environment, and what becomes of them.
type Case = (
    (Option<ThreadLocals>, Option<Balance>),
    (&'static str, &'static str),
    Result<(ThreadLocals, Balance), io::ErrorKind>,
);

const CASES: [Case; 14] = [
    ((None, None), ("", ""), Ok((Private, Moving))),
    ((None, None), ("shared", ""), Ok((Shared, Fixed))),
    ((None, None), ("private", ""), Ok((Private, Moving))),
    ((None, None), ("", "fixed"), Ok((Private, Fixed))),
    ((None, None), ("", "moving"), Ok((Private, Moving))),
    ((None, None), ("shared", "moving"), Err(io::ErrorKind::InvalidInput)),
    ((None, None), ("none", ""), Err(io::ErrorKind::InvalidInput)),
    ((None, None), ("", "none"), Err(io::ErrorKind::InvalidInput)),
    ((Some(Shared), None), ("", ""), Ok((Shared, Fixed))),
    ((Some(Shared), None), ("private", "moving"), Ok((Shared, Fixed))),
    ((Some(Shared), Some(Moving)), ("", ""), Err(io::ErrorKind::InvalidInput)),
    ((Some(Private), None), ("shared", "fixed"), Ok((Private, Fixed))),
    ((None, Some(Fixed)), ("", "moving"), Ok((Private, Fixed))),
    ((None, Some(Moving)), ("shared", "fixed"), Ok((Private, Moving))),
];

fn outcome(locals: Option<ThreadLocals>, balance: Option<Balance>) -> io::Result<()> {
    let mut builder = Builder::new().workers(2);
    if let Some(locals) = locals {
        builder = builder.thread_locals(locals);
    }
    if let Some(balance) = balance {
        builder = builder.balance(balance);
    }
    let (locals, balance, why) =
        builder.run(|| (runtime::thread_locals(), runtime::balance(), runtime::why_shared()))?;
    assert_eq!(why.is_some(), locals == Some(Shared), "{why:?}");
    println!("outcome: {:?}", (locals.unwrap(), balance.unwrap()));
    Ok(())
}

#[test]
fn the_program_chooses_before_the_environment() {
    if cfg!(not(target_env = "gnu")) {
        return println!("skipped: fibers share thread-locals");
    }
    for (index, ((locals, balance), (of_locals, of_balance), expected)) in (0..).zip(CASES) {
        let output = child::run_with("the_program_chooses_before_the_environment", |command| {
            let command = command.env("CRINGLE_TEST_CASE", format!("{index}"));
            command.env("CRINGLE_THREAD_LOCALS", of_locals).env("CRINGLE_BALANCE", of_balance)
        });
        let Some(output) = output else {
            let is_this = std::env::var("CRINGLE_TEST_CASE").unwrap() == index.to_string();
            if is_this && let Err(e) = outcome(locals, balance) {
                println!("outcome: {:?}", e.kind());
            }
            continue;
        };
        let expected = match expected {
            Ok(both) => format!("outcome: {both:?}\n"),
            Err(kind) => format!("outcome: {kind:?}\n"),
        };
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(&expected), "case {index}: {text}");
    }
}
