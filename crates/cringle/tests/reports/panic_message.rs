//! The default panic message names the fiber.

use cringle::{Builder, fiber};
use cringle_testing::child;

fn panic_on_fibers() {
    let builder = Builder::new().workers(2);
    let run = builder.run(|| {
        let named = fiber::Builder::new().name("fetch".into()).worker(1);
        named.spawn(|| panic!("no answer")).unwrap().join().unwrap_err(); // the named place
        fiber::spawn_local(|| panic!("without a name")).join().unwrap_err();
    });
    run.unwrap();
}

/// Returns the standard error of a child process that runs `f` in the test of this name.
fn stderr_of(test: &str, f: fn()) -> Option<String> {
    let Some(output) = child::run(test) else {
        f();
        return None;
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    Some(String::from_utf8(output.stderr).unwrap())
}

#[test]
fn default_panic_message_names_fiber() {
    let Some(text) = stderr_of("default_panic_message_names_fiber", panic_on_fibers) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect(text);
    let source = include_str!("panic_message.rs").lines();
    let line = 1 + source.take_while(|line| !line.ends_with("// the named place")).count();
    let name = at(&format!("cringle: fiber 'fetch' (worker 1) panicked at {}:{line}:", file!()));
    assert!(name < at("no answer"), "{text}");
    assert_eq!(text.matches("cringle: fiber").count(), 1, "{text}");
}

#[test]
fn own_panic_hook_replaces_message() {
    let panic_with_hook = || {
        std::panic::set_hook(Box::new(|_| eprintln!("hook: {:?}", fiber::current().name())));
        panic_on_fibers();
    };
    let test = "own_panic_hook_replaces_message";
    let Some(text) = stderr_of(test, panic_with_hook) else { return };
    assert!(text.contains("hook: Some(\"fetch\")"), "{text}");
    assert!(text.contains("hook: None"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
