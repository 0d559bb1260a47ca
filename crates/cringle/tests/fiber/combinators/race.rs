//! `race`, `race_with` and `any`.

use super::{FOREVER, discard, is_cancel, is_unwound, panic_of, silent_pipe};
use cringle::{cancel, fiber, time};
use cringle_testing::tools::{on_one_worker, yield_times};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::panic::panic_any;
use std::time::Duration;

// ----- race -----

#[test]
fn race_cancels_the_read_of_its_loser() {
    on_one_worker(|| {
        let (pipe, _writer) = silent_pipe();
        let error = Cell::new(None);
        let reads = || {
            let result = (&pipe).read(&mut [0]);
            error.set(result.as_ref().err().map(is_cancel));
            result
        };
        let wins = || time::sleep(Duration::from_millis(1)).map(|()| 42);
        assert_eq!(fiber::race(wins, reads).unwrap(), 42);
        assert_eq!(error.take(), Some(true));
        assert_eq!(fiber::race(reads, wins).unwrap(), 42);
        assert_eq!(error.take(), Some(true), "the side on the calling fiber is cancelled, too");
        // The caller is not cancelled.
        assert!(cancel::check().is_ok());
    });
}

#[test]
fn race_unwinds_a_loser_that_cannot_fail() {
    on_one_worker(|| {
        let sleeps = || -> io::Result<i32> {
            fiber::sleep(FOREVER);
            unreachable!("a cancelled sleep does not return");
        };
        let wins = || fiber::yield_now_cancellable().map(|()| 1);
        assert_eq!(fiber::race(sleeps, wins).unwrap(), 1);
        assert_eq!(fiber::race(wins, sleeps).unwrap(), 1);
        // In a scope, on a fiber of a fiber.
        let nested =
            || fiber::race(sleeps, || fiber::scope(|s| s.spawn_local(sleeps).join().unwrap()));
        assert_eq!(fiber::race(nested, wins).unwrap(), 1);
    });
}

#[test]
fn race_with_combines_two_winners_in_order() {
    on_one_worker(|| {
        // A side that is cancelled may still return its value.
        let done = |turns, value| {
            move || {
                (0..turns).for_each(|_| drop(fiber::yield_now_cancellable()));
                Ok::<_, io::Error>(vec![value])
            }
        };
        let both = |first, second| [first, second].concat();
        assert_eq!(fiber::race_with(done(1, 'a'), done(3, 'b'), both).unwrap(), ['a', 'b']);
        assert_eq!(fiber::race_with(done(3, 'a'), done(1, 'b'), both).unwrap(), ['b', 'a']);
        // A cancelled side without a value is ignored.
        let waits = || time::sleep(FOREVER).map(|()| vec!['c']);
        assert_eq!(fiber::race_with(done(1, 'a'), waits, both).unwrap(), ['a']);
        assert_eq!(fiber::race_with(waits, done(1, 'a'), both).unwrap(), ['a']);
    });
}

/// Whenever the cancel arrives, a byte is either returned or still in its pipe.
#[test]
fn no_byte_is_lost_when_reads_race() {
    on_one_worker(|| {
        for turns in (0..6).cycle().take(300) {
            let pipes = [(); 2].map(|()| silent_pipe());
            let [left, right] = pipes.each_ref().map(|(reader, _)| {
                move || {
                    let mut byte = [0];
                    let mut reader = reader;
                    reader.read_exact(&mut byte).map(|()| u32::from(byte[0]))
                }
            });
            fiber::scope(|s| {
                s.spawn_local(|| {
                    yield_times(turns % 3);
                    io::Write::write_all(&mut &pipes[0].1, &[1]).unwrap();
                    yield_times(turns / 3);
                    io::Write::write_all(&mut &pipes[1].1, &[2]).unwrap();
                });
                let taken = fiber::race_with(left, right, |first, second| first + second);
                let taken = taken.unwrap();
                // If the other byte is lost, this read waits for ever.
                let rest = match taken {
                    1 => right().unwrap(),
                    2 => left().unwrap(),
                    _ => 0,
                };
                assert_eq!(taken + rest, 3);
            });
        }
    });
}

#[test]
fn race_returns_the_first_result_or_error() {
    on_one_worker(|| {
        let fails = || Err(io::Error::from(ErrorKind::NotFound));
        let waits = || time::sleep(FOREVER);
        assert_eq!(fiber::race(waits, fails).unwrap_err().kind(), ErrorKind::NotFound);
        // The first side did not wait, so the second does not start.
        let never = || panic!("the second side started");
        assert_eq!(fiber::race(fails, never).unwrap_err().kind(), ErrorKind::NotFound);
        // A side's own deadline counts as its error.
        let late = || time::timeout(Duration::from_millis(1), waits);
        assert_eq!(fiber::race(waits, late).unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn race_resumes_panics_of_winner_and_loser() {
    on_one_worker(|| {
        let waits = || time::sleep(FOREVER);
        let wins = || fiber::yield_now_cancellable();
        let panics = || panic_any(1);
        assert_eq!(panic_of(|| discard(fiber::race(waits, panics))), 1);
        let loser = || {
            time::sleep(FOREVER).unwrap_err();
            panic_any(2)
        };
        assert_eq!(panic_of(|| discard(fiber::race(wins, loser))), 2);
        assert_eq!(panic_of(|| discard(fiber::race(loser, wins))), 2);
    });
}

#[test]
fn cancel_from_outside_reaches_both_racing_sides() {
    on_one_worker(|| {
        let waits = || time::sleep(FOREVER);
        let sleeps = || -> io::Result<()> {
            fiber::sleep(FOREVER);
            unreachable!("a cancelled sleep does not return");
        };
        let limit = Duration::from_millis(1);
        for race in [
            &(|| fiber::race(waits, waits)) as &dyn Fn() -> io::Result<()>,
            &|| fiber::race(waits, sleeps),
            &|| fiber::race(sleeps, waits),
            &|| fiber::race(sleeps, sleeps),
        ] {
            assert_eq!(time::timeout(limit, race).unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert!(cancel::check().is_ok());
    });
}

// ----- any -----

#[test]
fn any_returns_first_success_and_cancels_others() {
    on_one_worker(|| {
        let attempts = [0, 3, 1, 2].map(|n: u64| {
            move || match n {
                0 => Err(io::Error::from(ErrorKind::NotFound)),
                3 => time::sleep(FOREVER).map(|()| 3),
                n => time::sleep(Duration::from_millis(n * 4)).map(|()| n),
            }
        });
        assert_eq!(fiber::any(attempts).unwrap(), 1);
    });
}

#[test]
fn any_returns_last_error_if_all_fail() {
    on_one_worker(|| {
        let kinds = [(3, ErrorKind::AddrInUse), (1, ErrorKind::NotFound)];
        let attempts = kinds.map(|(turns, kind)| {
            move || {
                yield_times(turns);
                Err::<(), _>(io::Error::from(kind))
            }
        });
        assert_eq!(fiber::any(attempts).unwrap_err().kind(), ErrorKind::AddrInUse);
        let none: [fn() -> io::Result<()>; 0] = [];
        assert_eq!(fiber::any(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn cancelled_any_fails_or_unwinds() {
    on_one_worker(|| {
        fiber::scope(|s| {
            s.spawn_local(|| {
                let attempts = [(); 3].map(|()| || time::sleep(FOREVER));
                assert!(is_cancel(&fiber::any(attempts).unwrap_err()));
                let sleeps = [(); 3].map(|()| {
                    || {
                        fiber::sleep(FOREVER);
                        io::Result::Ok(())
                    }
                });
                assert!(is_unwound(|| discard(fiber::any(sleeps))));
            });
            fiber::yield_now();
            fiber::yield_now();
            s.cancel();
        });
    });
}

#[test]
fn panic_in_any_cancels_the_others() {
    on_one_worker(|| {
        let attempts = (0..5).map(|n| {
            move || match n {
                2 => panic_any(2),
                _ => time::sleep(FOREVER),
            }
        });
        assert_eq!(panic_of(|| discard(fiber::any(attempts))), 2);
    });
}
