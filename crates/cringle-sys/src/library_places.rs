//! Places in the source of the library itself: reports leave out its frames, and name the fibers
//! that it spawns.

/// The crates of which the library is made, without their common prefix.
const CRATES: [&str; 9] =
    ["sys", "tls", "driver", "core", "std", "run", "storage", "sim", "interpose"];

/// What follows the name of a crate in the path of a registry. In a workspace nothing does.
const VERSION: &str = concat!("-", env!("CARGO_PKG_VERSION"));

/// Returns the path of a file within the crate of the library that it belongs to, such as
/// `net/server/accept.rs`. `file` is that of a `Location`, or of debug information.
pub fn module_of_library(file: &str) -> Option<&str> {
    let starts = file.match_indices("cringle-").map(|(at, _)| at);
    let mut starts = starts.filter(|&at| at == 0 || file[..at].ends_with('/'));
    starts.find_map(|at| {
        let name = &file[at + "cringle-".len()..];
        CRATES.iter().find_map(|known| {
            let path = name.strip_prefix(known)?;
            path.strip_prefix(VERSION).unwrap_or(path).strip_prefix("/src/")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_the_names_of_its_crates() {
        let in_registry = format!("/r/cringle-sys{VERSION}/src/net/addr.rs");
        assert_eq!(module_of_library(&in_registry), Some("net/addr.rs"));
        assert_eq!(module_of_library("crates/cringle-std/src/lib.rs:7:9"), Some("lib.rs:7:9"));
        assert_eq!(module_of_library(file!()), Some("library_places.rs"));
        let others = [
            "crates/cringle-cp/src/lib.rs",
            "src/main.rs",
            "cringle-std/a.rs",
            "x-cringle-sys/src/a",
        ];
        assert!(others.iter().all(|file| module_of_library(file).is_none()));
    }
}
