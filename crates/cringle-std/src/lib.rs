//! Std's API on fibers: each call of std that may wait, for the crate `cringle`.
//!
//! It is a part of the crate `cringle`, is published for it alone, and has no stable API.
//!
//! Programs use these modules under the same names in `cringle`. A call suspends its fiber; outside
//! of a fiber it blocks its thread, as std's does. No op uses the own cursor of a seekable file
//! (**I11**). The library holds no OS lock while a fiber is suspended (**I6**). A thread that wakes
//! a waiter touches the waiter's frame last when it stores the outcome (**I10**).
//!
//! | module | content |
//! |---|---|
//! | [`sync`] | how a caller, a fiber or a thread, waits and is woken; locks and channels |
//! | [`fiber`] | the API of fibers; `fiber/op.rs` performs an op for those below |
//! | [`cancel`], [`time`], [`signal`] | the ends of a wait: cancels, deadlines, signals |
//! | [`io`], [`fs`], [`net`], [`process`], [`os`] | std's modules of these names |
//! | [`ring`] | an op of the caller's own |
//! | [`internal`] | what the crates above use, and programs do not |

#![deny(missing_docs)]

#[macro_use]
extern crate cringle_sys;

pub mod cancel;
pub mod fiber;
pub mod fs;
pub mod internal;
pub mod io;
pub mod net;
pub mod os;
pub mod process;
pub mod ring;
pub mod signal;
pub mod sync;
pub mod time;
