//! Other programs, as users have them: those of `examples/`, which run as the programs that cargo
//! has built, programs under a debugger, and programs that the compiler must reject.

mod debugger;
mod kv;
mod metrics;
mod program;
mod rejected;
mod small;
mod web;
mod web_tools;
