//! Links the shared library so that `dlclose` leaves it in memory: its threads may still run, and
//! the destructors of thread-locals are in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
