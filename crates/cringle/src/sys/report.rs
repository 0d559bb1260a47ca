//! Reports on standard error.

#[cfg(feature = "sim")]
use std::cell::Cell;
use std::io;

#[cfg(feature = "sim")]
thread_local! {
    static SIMULATION_SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the seed that this thread's reports name, while the thread runs a simulation.
#[cfg(feature = "sim")]
pub(crate) fn set_simulation_seed(seed: Option<u64>) {
    SIMULATION_SEED.set(seed);
}

/// Writes one line to standard error and ignores errors. A report must not panic, as `eprintln!`
/// does if standard error is closed, least of all before an abort.
pub(crate) fn report(line: std::fmt::Arguments<'_>) {
    #[cfg(feature = "sim")]
    if let Some(seed) = SIMULATION_SEED.try_with(Cell::get).ok().flatten() {
        let text = format_args!("cringle: (simulation of seed {seed}) {line}\n");
        let _ = std::io::Write::write_fmt(&mut io::stderr(), text);
        return;
    }
    let _ = std::io::Write::write_fmt(&mut io::stderr(), format_args!("cringle: {line}\n"));
}
