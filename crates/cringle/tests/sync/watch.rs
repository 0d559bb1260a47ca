//! `watch::Receiver::wait_for`.

use cringle::fiber;
use cringle::sync::watch;
use cringle_testing::tools::on_one_worker;

/// A caller that only waits must not have to use the value: this test must compile.
#[test]
#[deny(unused_must_use)]
fn value_of_wait_for_may_be_ignored() -> Result<(), watch::RecvError> {
    cringle::run(|| {
        let (sender, mut receiver) = watch::channel(0);
        fiber::spawn(move || sender.send(1).unwrap());
        receiver.wait_for(|value| *value == 1)?;
        receiver.wait_for_cancellable(|value| *value == 1).unwrap()?;
        Ok(())
    })
}

/// A call to `wait_for` may suspend after it has checked the value, when its budget is spent.
#[test]
fn wait_for_returns_the_value_that_it_has_checked() {
    on_one_worker(|| {
        let (sender, mut receiver) = watch::channel(0);
        fiber::scope(|s| {
            s.spawn_daemon_local(move || {
                for value in 1.. {
                    sender.send(value).unwrap();
                    fiber::yield_now();
                }
            });
            for _ in 0..1000 {
                assert_eq!(*receiver.wait_for(|value| value % 2 == 0).unwrap() % 2, 0);
            }
        });
    });
}

#[test]
fn wait_for_ends_with_the_last_sender() {
    on_one_worker(|| {
        let (sender, mut receiver) = watch::channel(0);
        fiber::spawn_local(move || {
            sender.send(1).unwrap();
            fiber::yield_now();
        });
        assert!(receiver.wait_for(|value| *value == 2).is_err());
        assert!(receiver.wait_for_cancellable(|value| *value == 2).unwrap().is_err());
        assert_eq!(*receiver.wait_for(|value| *value == 1).unwrap(), 1);
    });
}
