//! Threads that do what only a thread of the system can do: they do it with the library as without.

mod served;

fn check(case: &str, lines: &[&str]) {
    served::check("own", case, 0, lines);
}

#[test]
fn others_run_while_threads_wait_in_calls_that_are_not_interposed() {
    check("blocked", &["game", "joined"]);
}

#[test]
fn others_run_while_threads_spin() {
    check("spins", &["spun"]);
}

#[test]
fn thread_waits_for_a_signal_to_the_process() {
    check("waits", &["waited"]);
}

#[test]
fn handlers_run_on_the_thread_that_admits_the_signal() {
    check("handlers", &["raised", "received"]);
}

#[test]
fn signal_to_a_thread_ends_its_wait() {
    check("killed", &["interrupted", "woken"]);
}

#[test]
fn thread_has_a_stack_for_handlers() {
    check("stack", &["on the stack"]);
}

#[test]
fn thread_keeps_what_is_its_own_when_it_leaves_its_worker_and_comes_back() {
    check("locals", &["kept"]);
}

#[test]
fn thread_of_its_own_ends_and_forks_as_any_other() {
    check("ends", &["left", "forked"]);
}
