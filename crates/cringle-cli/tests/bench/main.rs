//! `cringle bench` as a user runs it: each experiment, and the pages of `--html`.

#[path = "../common/mod.rs"]
mod common;

mod all;
mod batch;
mod cp;
mod db;
mod disk;
mod html;
mod http;
mod sum;
