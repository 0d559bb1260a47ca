//! What a fiber of `spawn` does not have from the closure of `run`, and a local fiber has.

use super::with_private;
use cringle::fiber;

/// Asks on a fiber of `spawn`, and on a local one.
fn on_both(ask: impl Fn() -> bool + Copy + Send + 'static) -> (bool, bool) {
    (fiber::spawn(ask).join().unwrap(), fiber::spawn_local(ask).join().unwrap())
}

#[test]
fn an_entered_runtime_of_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    with_private(|| {
        let _entered = runtime.enter();
        let is_entered = || tokio::runtime::Handle::try_current().is_ok();
        assert_eq!(on_both(is_entered), (false, true));
        let handle = runtime.handle().clone();
        let passed_along = fiber::spawn(move || {
            let _entered = handle.enter();
            is_entered()
        });
        assert!(passed_along.join().unwrap());
    });
}

#[cfg(feature = "tracing")]
#[test]
fn a_default_subscriber_of_tracing() {
    use tracing::subscriber::NoSubscriber;

    with_private(|| {
        let _set = tracing::subscriber::set_default(tracing_subscriber::registry());
        let is_set = || tracing::dispatcher::get_default(|it| !it.is::<NoSubscriber>());
        assert_eq!(on_both(is_set), (false, true));
    });
}

/// A thread of std inherits the place where the output of a test goes; a fiber cannot.
#[test]
fn the_captured_output_of_a_test() {
    const CHILD: &str = "CRINGLE_TEST_CAPTURE";
    let print = || {
        println!("printed by a fiber");
        true
    };
    if std::env::var_os(CHILD).is_some() {
        return with_private(|| assert_eq!(on_both(print), (true, true)));
    }
    let mut child = cringle_testing::child::this_program();
    child.args(["--exact", "changes::the_captured_output_of_a_test"]).env(CHILD, "1");
    let output = child.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    // On one worker and on two, by one fiber of `spawn` each.
    assert_eq!(text.matches("printed by a fiber").count(), 2, "{text}");
}
