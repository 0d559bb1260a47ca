//! `net::Server`: each connection is served, whatever the others do.

use cringle::fiber;
use cringle::net::{Served, Server, SocketAddr, Stopper, TcpListener, TcpStream};
use cringle::runtime::Balance;
use cringle::signal::{self, Signal};
use cringle::sync::Barrier;
use cringle::{Builder, cancel};
use cringle_testing::child;
use std::cell::Cell;
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

fn on_workers<T>(workers: usize, f: impl FnOnce() -> T) -> T {
    Builder::new().workers(workers).run(f).unwrap()
}

/// Returns a server that cuts no connection off because the machine is busy.
fn bind() -> Server {
    Server::bind("127.0.0.1:0").unwrap().grace(LONG)
}

/// Serves with this handler while `clients` runs, then stops.
fn serve(
    server: Server,
    handler: impl Fn(TcpStream, SocketAddr) -> io::Result<()> + Sync,
    clients: impl FnOnce(SocketAddr, &Stopper),
) -> io::Result<Served> {
    let (addr, stopper) = (server.local_addr().unwrap(), server.stopper());
    fiber::scope(|s| {
        let serves = s.spawn_local(|| server.run(handler));
        clients(addr, &stopper);
        stopper.stop();
        serves.join().unwrap()
    })
}

fn echo(mut stream: TcpStream, _peer: SocketAddr) -> io::Result<()> {
    io::copy(&mut stream.try_clone()?, &mut stream).map(drop)
}

/// Sends a word and reads the echo.
fn converse(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    talk(&mut stream);
    stream
}

fn talk(stream: &mut TcpStream) {
    let mut word = [0; 4];
    stream.write_all(b"ahoy").unwrap();
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ahoy");
}

/// Whether the peer has closed the connection.
fn is_over(mut stream: TcpStream) -> bool {
    !matches!(stream.read(&mut [0]), Ok(1))
}

#[test]
fn each_worker_has_its_own_listener() {
    for workers in [1, 2, 3] {
        let seen = Mutex::new(HashSet::new());
        let builder = Builder::new().workers(workers).balance(Balance::Fixed);
        let served = builder.run(|| {
            let server = bind();
            let handler = |stream, peer: SocketAddr| {
                assert!(peer.ip().is_loopback());
                seen.lock().unwrap().insert(cringle::runtime::worker().unwrap());
                echo(stream, peer)
            };
            serve(server, handler, |addr, _| {
                // The client's port determines the worker.
                while seen.lock().unwrap().len() < workers {
                    drop(converse(addr));
                }
            })
        });
        let served = served.unwrap().unwrap();
        assert!(served.connections >= workers as u64);
        assert_eq!((served.failed, served.panicked, served.cut_off, served.refused), (0, 0, 0, 0));
    }
}

#[test]
fn taken_port_is_refused() {
    for workers in [1, 2] {
        on_workers(workers, || {
            let taken = TcpListener::bind("127.0.0.1:0").unwrap();
            let error = Server::bind(taken.local_addr().unwrap()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            let server = bind();
            let addr = server.local_addr().unwrap();
            assert_eq!(Server::bind(addr).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            assert_eq!(TcpListener::bind(addr).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        });
    }
}

#[test]
fn handler_failures_end_one_connection_and_are_counted() {
    let served = on_workers(2, || {
        let server = bind();
        let handler = |mut stream: TcpStream, _| {
            let mut what = [0];
            stream.read_exact(&mut what)?;
            match &what {
                b"e" => Err(io::Error::other("on purpose")),
                b"p" => std::panic::resume_unwind(Box::new("on purpose")),
                _ => stream.write_all(&what),
            }
        };
        serve(server, handler, |addr, _| {
            for what in [b"e", b"p", b"p", b"!"] {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.write_all(what).unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                assert_eq!(answer == b"!", what == b"!");
            }
        })
    });
    let served = served.unwrap();
    let Served { connections, failed, panicked, cut_off, refused, .. } = served;
    assert_eq!((connections, failed, panicked, cut_off, refused), (4, 1, 2, 0, 0));
}

#[test]
fn connection_limit_is_not_exceeded() {
    const LIMIT: usize = 3;
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let served = on_workers(2, || {
        let server = bind().max_connections(LIMIT);
        let handler = |stream, peer| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let end = echo(stream, peer);
            now.fetch_sub(1, Ordering::SeqCst);
            end
        };
        serve(server, handler, |addr, _| {
            fiber::scope(|s| {
                for _ in 0..40 {
                    s.spawn(move || drop(converse(addr)));
                }
            });
        })
    });
    assert_eq!((served.unwrap().connections, most.into_inner()), (40, LIMIT));
}

#[test]
fn connection_limit_is_reached() {
    for limit in [1, 2] {
        let barrier = Barrier::new(limit);
        let served = on_workers(2, || {
            let server = bind().max_connections(limit);
            let handler = |mut stream: TcpStream, _| {
                barrier.wait();
                stream.write_all(b"!")
            };
            // On either worker: the other one waits for a connection, too.
            serve(server, handler, |addr, _| {
                for _ in 0..20 {
                    let mut clients: Vec<_> =
                        (0..limit).map(|_| TcpStream::connect(addr).unwrap()).collect();
                    clients.iter_mut().for_each(|client| client.read_exact(&mut [0]).unwrap());
                }
            })
        });
        assert_eq!(served.unwrap().connections, 20 * limit as u64);
    }
}

#[test]
fn stop_refuses_new_connections_and_finishes_open_ones() {
    let served = on_workers(2, || {
        let server = bind();
        let (addr, stopper) = (server.local_addr().unwrap(), server.stopper());
        assert!(!stopper.is_stopped());
        fiber::scope(|s| {
            let serves = s.spawn(|| server.run(echo));
            let mut streams = [converse(addr), converse(addr), converse(addr)];
            stopper.stop();
            stopper.stop();
            // Each worker closes its listener when it notices the stop.
            while TcpStream::connect(addr).is_ok() {
                fiber::yield_now();
            }
            streams.iter_mut().for_each(talk);
            assert!(!serves.is_finished());
            drop(streams);
            serves.join().unwrap()
        })
    });
    assert_eq!((served.as_ref().unwrap().failed, served.unwrap().cut_off), (0, 0));
}

#[test]
fn connections_are_cancelled_after_the_grace_period() {
    let served = on_workers(2, || {
        let server = bind().grace(Duration::from_millis(20));
        let handler = |mut stream: TcpStream, _| {
            stream.write_all(b"!")?;
            let mut byte = [0];
            // One handler unwinds, the other returns an error.
            match stream.read(&mut byte)? {
                1 if &byte == b"u" => {
                    stream.write_all(b"!")?;
                    fiber::sleep(LONG);
                }
                _ => stream.read_exact(&mut byte)?,
            }
            Ok(())
        };
        let mut streams = Vec::new();
        let served = serve(server, handler, |addr, _| {
            for how in [b"u", b"e"] {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                stream.write_all(how).unwrap();
                if how == b"u" {
                    stream.read_exact(&mut [0]).unwrap();
                }
                streams.push(stream);
            }
        });
        assert!(streams.into_iter().all(is_over));
        served
    });
    assert_eq!((served.as_ref().unwrap().cut_off, served.unwrap().panicked), (2, 0));
}

#[test]
fn cancelled_server_ends_at_once() {
    on_workers(2, || {
        let server = bind();
        let addr = server.local_addr().unwrap();
        fiber::scope(|s| {
            let serves = s.spawn(|| server.run(echo));
            let stream = converse(addr);
            s.cancel();
            let error = serves.join().unwrap().unwrap_err();
            assert_eq!(cancel::reason(&error), Some(cancel::Reason::Cancelled));
            assert!(fiber::protect(|| is_over(stream)));
        });
    });
}

#[test]
fn server_stopped_before_it_runs_accepts_nothing() {
    on_workers(2, || {
        let server = bind();
        let addr = server.local_addr().unwrap();
        let too_early = TcpStream::connect(addr).unwrap();
        server.stopper().stop();
        assert_eq!(server.run(echo).unwrap(), Served::default());
        assert!(is_over(too_early));
    });
}

#[test]
fn server_outside_of_run_explains_its_error() {
    let server = bind();
    let error = server.run(echo).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("cringle::run"), "{error}");
}

#[cfg(feature = "sim")]
#[test]
fn server_in_a_simulation_fails() {
    let report = cringle::sim::run(1, &cringle::sim::Options::new(), || {
        bind().run(echo).unwrap_err().kind()
    });
    assert_eq!(report.unwrap().value, io::ErrorKind::Unsupported);
}

#[test]
fn workers_share_a_given_listener() {
    let served = on_workers(2, || {
        let builder = TcpListener::builder().backlog(16).nodelay(true);
        let server = Server::from(builder.bind("127.0.0.1:0").unwrap());
        let handler = |stream: TcpStream, peer| {
            assert!(stream.nodelay()?);
            echo(stream, peer)
        };
        serve(server, handler, |addr, _| (0..10).for_each(|_| drop(converse(addr))))
    });
    assert_eq!((served.as_ref().unwrap().connections, served.unwrap().panicked), (10, 0));
}

#[test]
fn nonblocking_listener_is_polled() {
    let served = on_workers(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        serve(Server::from(listener), echo, |addr, _| (0..10).for_each(|_| drop(converse(addr))))
    });
    let served = served.unwrap();
    assert_eq!((served.connections, served.refused), (10, 0));
}

/// Handlers that borrow from the caller and wait for each other.
#[test]
fn handlers_may_borrow_and_wait_for_each_other() {
    let (barrier, done) = (Barrier::new(4), AtomicUsize::new(0));
    on_workers(2, || {
        let server = bind();
        let handler = |mut stream: TcpStream, _| {
            barrier.wait();
            done.fetch_add(1, Ordering::Relaxed);
            stream.write_all(b"!")
        };
        serve(server, handler, |addr, _| {
            let clients = (0..4).map(|_| TcpStream::connect(addr).unwrap()).collect::<Vec<_>>();
            for mut client in clients {
                client.read_exact(&mut [0]).unwrap();
            }
        })
        .unwrap();
    });
    assert_eq!(done.into_inner(), 4);
}

#[test]
fn server_survives_running_out_of_descriptors() {
    child::must_succeed("server_survives_running_out_of_descriptors", || {
        let served = on_workers(2, || {
            let server = bind();
            let hoard = Cell::new(Vec::new());
            // Opened before the limit of descriptors is reached.
            let new = || {
                let kind = socket2::Type::STREAM;
                socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap()
            };
            let clients: Vec<_> = (0..4).map(|_| new()).collect();
            // A handler opens no descriptor.
            let handler = |mut stream: TcpStream, _| {
                let mut word = [0; 4];
                stream.read_exact(&mut word)?;
                stream.write_all(&word)
            };
            serve(server, handler, |addr, stopper| {
                drop(converse(addr));
                child::limit(libc::RLIMIT_NOFILE, 100).unwrap();
                let mut taken = Vec::new();
                while let Ok(fd) = clients[0].try_clone() {
                    taken.push(fd);
                }
                hoard.set(taken);
                let mut clients = clients.into_iter().map(|client| {
                    client.connect(&addr.into()).unwrap();
                    TcpStream::from(client)
                });
                let mut all: Vec<_> = clients.by_ref().collect();
                while stopper.served().refused == 0 {
                    fiber::yield_now();
                }
                hoard.take();
                all.iter_mut().for_each(talk);
            })
        });
        let served = served.unwrap();
        assert_eq!(served.connections, 5);
        assert!(served.refused > 0);
    });
}

/// Echoes words, and ends between two words if the server stops.
fn kept(
    stopper: &Stopper,
    begun: &AtomicUsize,
) -> impl Fn(TcpStream, SocketAddr) -> io::Result<()> + Sync {
    move |mut stream, _| {
        let mut word = [0; 4];
        while let Some(count @ 1..) = stopper.until_stopped(|| stream.read(&mut word))? {
            begun.fetch_add(1, Ordering::SeqCst);
            stream.read_exact(&mut word[count..])?;
            stream.write_all(&word)?;
        }
        Ok(())
    }
}

#[test]
fn stop_ends_handlers_that_wait_for_a_request() {
    for workers in [1, 2] {
        let served = on_workers(workers, || {
            let server = bind();
            let (stopper, begun) = (server.stopper(), AtomicUsize::new(0));
            let handler = kept(&stopper, &begun);
            serve(server, handler, |addr, stopper| {
                let idle: Vec<_> = (0..20).map(|_| converse(addr)).collect();
                stopper.stop();
                assert!(idle.into_iter().all(is_over));
            })
        });
        let served = served.unwrap();
        assert_eq!((served.connections, served.cut_off, served.failed), (20, 0, 0));
    }
}

#[test]
fn started_request_is_answered_after_the_stop() {
    for workers in [1, 2] {
        let served = on_workers(workers, || {
            let server = bind();
            let (stopper, begun) = (server.stopper(), AtomicUsize::new(0));
            let handler = kept(&stopper, &begun);
            serve(server, handler, |addr, stopper| {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.write_all(b"a").unwrap();
                while begun.load(Ordering::SeqCst) == 0 {
                    fiber::yield_now();
                }
                stopper.stop();
                let mut word = [0; 4];
                stream.write_all(b"hoy").unwrap();
                stream.read_exact(&mut word).unwrap();
                assert_eq!(&word, b"ahoy");
                assert!(is_over(stream));
            })
        });
        let served = served.unwrap();
        assert_eq!((served.connections, served.cut_off, served.failed), (1, 0, 0));
    }
}

/// The stopper of a server that does not run.
fn stopper() -> Stopper {
    bind().stopper()
}

#[test]
fn stop_cancels_only_the_call_in_until_stopped() {
    on_workers(2, || {
        let stopper = stopper();
        assert_eq!(stopper.until_stopped(|| Ok(1)).unwrap(), Some(1));
        let error = stopper.until_stopped(|| Err::<(), _>(io::Error::other("own"))).unwrap_err();
        assert_eq!(error.to_string(), "own");
        let payload = fiber::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stopper.until_stopped::<()>(|| std::panic::resume_unwind(Box::new("own")))
        }));
        assert_eq!(payload.unwrap_err().downcast_ref(), Some(&"own"));
        // An inner deadline returns its own error, and an outer cancel is not a stop.
        let slow = || cringle::time::sleep(LONG);
        let limit = Duration::from_millis(1);
        let error = stopper.until_stopped(|| cringle::time::timeout(limit, slow)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = cringle::time::timeout(limit, || stopper.until_stopped(slow)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        fiber::scope(|s| {
            let waits = s.spawn(|| stopper.until_stopped(slow));
            s.cancel();
            let error = waits.join().unwrap().unwrap_err();
            assert_eq!(cancel::reason(&error), Some(cancel::Reason::Cancelled));
        });
        // Ends by an error, by unwinding, and in the fibers of a scope; completed calls return
        // their results.
        let begun = AtomicUsize::new(0);
        let sleeps = || {
            begun.fetch_add(1, Ordering::SeqCst);
            slow()
        };
        let unwinds = || {
            let _ = sleeps();
            fiber::sleep(LONG);
            Ok(())
        };
        let below = || fiber::scope(|s| s.spawn(sleeps).join().unwrap());
        fiber::scope(|s| {
            let waits = [
                s.spawn(|| stopper.until_stopped(sleeps)),
                s.spawn(|| stopper.until_stopped(unwinds)),
                s.spawn(|| stopper.until_stopped(below)),
            ];
            let done = s.spawn(|| stopper.until_stopped(|| sleeps().or(Ok(()))));
            let waiter = s.spawn(|| stopper.wait());
            while begun.load(Ordering::SeqCst) < 4 {
                fiber::yield_now();
            }
            stopper.stop();
            for wait in waits {
                assert_eq!(wait.join().unwrap().unwrap(), None);
            }
            assert_eq!(done.join().unwrap().unwrap(), Some(()));
            waiter.join().unwrap().unwrap();
        });
        let refused =
            stopper.until_stopped(|| -> io::Result<()> { panic!("called after the stop") });
        assert_eq!(refused.unwrap(), None);
        cancel::check().unwrap();
    });
}

#[test]
fn stop_wakes_waiting_threads() {
    let stopper = stopper();
    assert_eq!(stopper.until_stopped(|| Ok(1)).unwrap(), Some(1));
    let waits = [(); 3].map(|()| {
        let stopper = stopper.clone();
        std::thread::spawn(move || stopper.wait())
    });
    on_workers(1, || stopper.stop());
    waits.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
    assert_eq!(stopper.until_stopped(|| Ok(1)).unwrap(), None);
}

#[test]
fn port_is_free_after_a_cancelled_server_ends() {
    let test = "port_is_free_after_a_cancelled_server_ends";
    for round in 0..6 {
        let Some(mut command) = child::command(test) else { return serve_until_sigterm() };
        command.env("WORKERS", (1 + round % 2).to_string()).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        // Kept open, because the child prints more than its address.
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let addr =
            lines.by_ref().map_while(Result::ok).find_map(|line| line.parse::<SocketAddr>().ok());
        let addr = addr.expect("the server prints its address");
        let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|s| {
            (0..4).for_each(|_| drop(s.spawn(|| ask_until(&over, &answers, addr))));
            while answers.load(Ordering::Relaxed) < 200 {
                std::thread::yield_now();
            }
            // SAFETY: no pointers; the child has not been waited for.
            assert_eq!(unsafe { libc::kill(server.id() as i32, libc::SIGTERM) }, 0);
            let ended = server.wait();
            let bound = std::net::TcpListener::bind(addr);
            over.store(true, Ordering::Relaxed);
            assert!(ended.unwrap().success());
            assert!(bound.is_ok(), "round {round}: {}", bound.unwrap_err());
        });
    }
}

/// The child process: an echo server that SIGTERM cancels.
fn serve_until_sigterm() {
    let workers = std::env::var("WORKERS").unwrap().parse().unwrap();
    let end = on_workers(workers, || {
        let guard = signal::cancel_on(&[Signal::Terminate]).unwrap();
        let server = bind();
        println!("\n{}", server.local_addr().unwrap());
        (server.run(echo), guard.received())
    });
    assert!(cancel::reason(&end.0.unwrap_err()).is_some());
    assert_eq!(end.1, Some(Signal::Terminate));
}

fn ask_until(over: &AtomicBool, answers: &AtomicUsize, addr: SocketAddr) {
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = std::net::TcpStream::connect(addr) else { continue };
        let mut word = [0; 4];
        for _ in 0..5 {
            if stream.write_all(b"ahoy").and_then(|()| stream.read_exact(&mut word)).is_err() {
                break;
            }
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }
}
