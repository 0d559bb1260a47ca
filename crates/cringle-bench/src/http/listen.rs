//! The server's side: this process is one, by itself or for another `bench http` that asks through
//! standard input what it has used so far, and whose end is that of this process.

use super::args::{HttpArgs, Variant};
use super::served_page::ServedPage;
use super::{open_files, servers};
use crate::meter;
use cringle_report::failure::{Failure, fail};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;

pub(super) fn run(args: &HttpArgs, addr: &str) -> Result<(), Failure> {
    let cell = args.cells()[0];
    let variants = args.variants(cell.workers)?;
    // A changed one comes after the whole one.
    let Some(&variant) = variants.last() else {
        return fail(format!("no server for --workers {}", cell.workers));
    };
    open_files::allow(cell.connections)?;
    if !args.cpus.is_empty() {
        cringle_report::machine::cpus::tie_to(&args.cpus)?;
    }
    let addr = resolve(addr)?;
    let page = Box::leak(Box::new(ServedPage::new(args.response_bytes(), !cell.keepalive)));
    let (workers, connections) = (cell.workers, cell.connections);
    let config = servers::ServerConfig { variant, addr, workers, connections, page };
    let controlled = args.controlled;
    let ready = move |addr| if controlled { be_controlled(addr) } else { tell(variant, addr) };
    servers::run(&config, &ready).map_err(|error| {
        Failure::failed(format!("the server `{}` at {addr} ended: {error}", variant.label()))
    })
}

pub(super) fn resolve(addr: &str) -> Result<SocketAddr, Failure> {
    let bad = |error| Failure::usage(format!("`{addr}` is no address ({error}): write HOST:PORT"));
    let first = addr.to_socket_addrs().map_err(bad)?.next();
    first.ok_or_else(|| Failure::usage(format!("`{addr}` has no address")))
}

fn tell(variant: Variant, addr: SocketAddr) {
    let text = format!("{} listens at {addr}; Ctrl-C ends it", variant.label());
    cringle_report::complain(&text);
}

/// Says where it listens, and then, for each byte that comes, what the process has used.
fn be_controlled(addr: SocketAddr) {
    if say(&addr.to_string()).is_err() {
        std::process::exit(i32::from(cringle_report::failure::FAILED));
    }
    thread::spawn(|| {
        let mut byte = [0];
        while io::stdin().read_exact(&mut byte).is_ok() {
            let usage = meter::process_usage();
            let (cpu, switches) = (usage.cpu_seconds(), usage.context_switches);
            if say(&format!("{cpu} {switches}")).is_err() {
                break;
            }
        }
        // Whoever has started it is gone or done.
        std::process::exit(0);
    });
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
