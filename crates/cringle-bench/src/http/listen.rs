//! `--listen`: runs a server in this process, for a user, or for another `bench http` that controls
//! it through standard input: each byte requests the resources used so far, and the end of input
//! ends the process.

use super::args::{HttpArgs, Variant};
use super::served_page::ServedPage;
use super::{open_files, servers};
use crate::{meter, no_thread};
use cringle_report::failure::{Failure, fail};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;

pub(super) fn run(args: &HttpArgs, addr: &str) -> Result<(), Failure> {
    let case = args.cases()[0];
    let variants = args.variants(case.workers);
    // The last one is the changed variant, if `--ablate` is given.
    let Some(&variant) = variants.last() else {
        return fail(format!("--workers {}: the server supports only one", case.workers));
    };
    open_files::allow(case.connections)?;
    let addr = resolve(addr)?;
    let page = Box::leak(Box::new(ServedPage::new(args.response_bytes(), !case.keepalive)));
    let (workers, connections) = (case.workers, case.connections);
    let config = servers::ServerConfig { variant, addr, workers, connections, page };
    let controlled = args.controlled;
    let ready =
        move |addr| if controlled { serve_controller(addr) } else { announce(variant, addr) };
    servers::run(&config, &ready).map_err(|error| {
        Failure::failed(format!("the server `{}` at {addr} ended: {error}", variant.label()))
    })
}

fn resolve(addr: &str) -> Result<SocketAddr, Failure> {
    let bad = |error| Failure::usage(format!("`{addr}`: not an address: {error}; write HOST:PORT"));
    let first = addr.to_socket_addrs().map_err(bad)?.next();
    first.ok_or_else(|| Failure::usage(format!("`{addr}`: the name has no address")))
}

fn announce(variant: Variant, addr: SocketAddr) {
    let text = format!("{} listens at {addr}; Ctrl-C ends it", variant.label());
    cringle_report::complain(&text);
}

/// Prints the address, once it can answer, and then for each byte of input the resources that the
/// process has used.
fn serve_controller(addr: SocketAddr) {
    let answers = || {
        let mut byte = [0];
        while io::stdin().read_exact(&mut byte).is_ok() {
            let usage = meter::process_usage();
            let meter::Usage { user_seconds, system_seconds, context_switches, .. } = usage;
            let line = format!("{user_seconds} {system_seconds} {context_switches}");
            if reply(&line).is_err() {
                break;
            }
        }
        // The controller has ended, or needs the server no longer.
        std::process::exit(0);
    };
    let started = thread::Builder::new().spawn(answers).map_err(|error| no_thread(&error, ""));
    if let Err(error) = started.and_then(|_| reply(&addr.to_string())) {
        cringle_report::complain(&format!("cringle: {error}"));
        std::process::exit(i32::from(cringle_report::failure::FAILED));
    }
}

fn reply(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
