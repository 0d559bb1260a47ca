//! Unmodified synchronous crates, each on many fibers at once against a real server. Each job
//! checks each answer, and waits on the server's side for a while, in which the worker must be
//! free.

cringle_interpose::install!();

#[cfg(feature = "ureq")]
mod example;
#[cfg(any(feature = "attohttpc", feature = "curl", feature = "reqwest", feature = "ureq"))]
mod http_clients;
#[cfg(feature = "tiny_http")]
mod http_server;
#[cfg(feature = "lettre")]
mod mail;
#[cfg(feature = "mysql")]
mod mariadb;
#[cfg(feature = "r2d2")]
mod pools;
#[cfg(any(feature = "diesel", feature = "postgres"))]
mod postgres_server;
mod processes;
#[cfg(feature = "redis")]
mod redis_server;
#[cfg(feature = "rusqlite")]
mod sqlite;
#[cfg(any(feature = "rayon", feature = "tiny_http"))]
mod threads;
