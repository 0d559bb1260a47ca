//! What the scheduler has for interposed calls alone: the crate `cringle-interpose` uses it.
//!
//! A thread that is a fiber has a block that its creator [keeps](Keeper) until it is joined, and a
//! [place](SpawnPlace) in the program. Besides, a fiber knows that it is [in a call of
//! libc](crate::fiber::Fiber::is_in_libc_call), how far its clock is ahead after a cancel, and lets
//! the scheduler [look up](Review) a deadline that C code may change.

pub use crate::family::{Keeper, Reserved};
pub use crate::spawn_place::{SpawnPlace, of_caller as place_of_caller, of_outsider};
pub use crate::stack::GUARD_BYTES;
pub use crate::worker::{
    Host, Review, end_thread_first, forget_own_thread, is_on_own_thread, release_block,
    return_to_worker, take_block,
};
