//! The words of errors of the library in Rust, in the terms of `cringle.h`.

/// What Rust's interface calls something, and what the interface for C calls it.
const TERMS: [(&str, &str); 7] = [
    ("ask for smaller stacks (fiber::Builder::stack_size)", "ask for fewer workers"),
    ("Builder::workers", "params.workers"),
    ("Builder::ring_entries", "params.batch_limit"),
    ("Builder::in_flight_limit", "params.in_flight_limit"),
    ("Builder::driver", "params.driver"),
    ("the BlockIo is", "the engine is"),
    ("BlockIo cannot start", "cringle_open"),
];

/// Returns a text for programs in C.
pub(crate) fn of_c(text: String) -> String {
    TERMS.iter().fold(text, |text, (rust, c)| match text.contains(rust) {
        true => text.replace(rust, c),
        false => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_become_those_of_c() {
        let of = |text: &str| of_c(text.into());
        let rust = "ask for fewer workers or a smaller Builder::in_flight_limit";
        assert_eq!(of(rust), "ask for fewer workers or a smaller params.in_flight_limit");
        assert_eq!(of("the BlockIo is closed"), "the engine is closed");
        assert_eq!(of("no such file"), "no such file");
    }
}
