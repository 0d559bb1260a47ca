//! The ends of processes, each with the library and without: they are the same.

mod served;

fn check(case: &str, status: i32, lines: &[&str]) {
    served::check("ends", case, status, lines);
}

#[test]
fn process_outlives_its_main_until_the_last_fiber() {
    let lines = ["handler", "destructor", "signal", "thread", "exit"];
    check("before-a-fiber", 0, &lines);
}

#[test]
fn process_outlives_its_main_until_the_last_thread() {
    let lines = ["handler", "destructor", "signal", "thread", "exit"];
    check("before-a-thread", 0, &lines);
}

#[test]
fn program_without_threads_ends_with_main() {
    check("alone", 0, &["exit"]);
}

#[test]
fn forked_child_ends_with_its_last_thread() {
    check("child", 2, &["thread of the child", "child 0"]);
}
