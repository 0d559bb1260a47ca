//! Places in the source of the library itself: reports leave out its frames, and name the fibers
//! that it spawns.

/// The crates of which the library is made, without their common prefix.
const CRATES: [&str; 9] =
    ["sys", "tls", "driver", "core", "std", "run", "storage", "sim", "interpose"];

/// Where the crates of the library lie, and what follows their names there: a version in a
/// registry, nothing in a workspace. The path is as `Location`s have it, absolute or not.
fn root() -> Option<(&'static str, &'static str)> {
    file!().strip_suffix("/src/library_places.rs")?.rsplit_once("cringle-sys")
}

/// Returns the path of a file within the crate of the library that it belongs to, such as
/// `net/server/accept.rs`. `file` is that of a `Location`, or of debug information.
pub fn module_of_library(file: &str) -> Option<&str> {
    let (parent, version) = root()?;
    let starts = file.match_indices(parent).map(|(at, _)| at);
    let mut starts = starts.filter(|&at| at == 0 || file[..at].ends_with('/'));
    starts.find_map(|at| {
        let name = file[at + parent.len()..].strip_prefix("cringle-")?;
        CRATES.iter().find_map(|known| {
            name.strip_prefix(known)?.strip_prefix(version)?.strip_prefix("/src/")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_its_place_and_the_names_of_its_crates() {
        let (parent, version) = root().expect("the path of this file");
        let module = |file: &str| module_of_library(file).map(str::to_owned);
        assert_eq!(module(file!()).as_deref(), Some("library_places.rs"));
        let place = format!("/w/{parent}cringle-std{version}/src/net/addr.rs:7:9");
        let place = place.replace("/w//", "/");
        assert_eq!(module(&place).as_deref(), Some("net/addr.rs:7:9"));
        let others = ["cringle-cp/src/lib.rs", "cringle-std/a.rs", "a/src/main.rs"];
        assert!(others.iter().all(|file| module(&format!("{parent}{file}")).is_none()));
        // A program in a directory of such a name is not the library.
        assert_eq!(module("/elsewhere/cringle-sim/src/main.rs"), None);
    }
}
