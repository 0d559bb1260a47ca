//! Finds a shared library where the dynamic linker would: `ld.so(8)`'s order, without preloaded
//! libraries and without the directories of processor variants (`glibc-hwcaps`).

use super::elf::Machine;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where one object's libraries are searched first.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The directory of the object: `$ORIGIN`.
    pub directory: PathBuf,
    pub rpath: Option<String>,
    pub runpath: Option<String>,
}

/// The parts of the search that are the same for all objects.
pub(super) struct Search {
    machine: Machine,
    /// `LD_LIBRARY_PATH` of this process.
    environment: Vec<PathBuf>,
    cache: BTreeMap<String, Vec<PathBuf>>,
}

const CACHE: &str = "/etc/ld.so.cache";

impl Search {
    pub(super) fn new(machine: Machine, is_musl: bool) -> Search {
        let environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let environment = std::env::split_paths(&environment);
        let environment = environment.filter(|path| !path.as_os_str().is_empty()).collect();
        // musl's linker does not read glibc's cache.
        let bytes = if is_musl { Vec::new() } else { fs::read(CACHE).unwrap_or_default() };
        Search { machine, environment, cache: cached(&bytes).unwrap_or_default() }
    }

    /// Returns the candidates for a library that `chain[0]` needs, in the linker's order. The rest
    /// of the chain are the objects that caused `chain[0]` to be loaded, up to the program.
    pub(super) fn candidates(&self, name: &str, chain: &[Origin]) -> Vec<PathBuf> {
        if name.contains('/') {
            return vec![PathBuf::from(name)];
        }
        let mut directories = Vec::new();
        let loader = &chain[0];
        if loader.runpath.is_none() {
            let inherited = chain.iter().filter(|origin| origin.runpath.is_none());
            for origin in inherited {
                directories.extend(self.expanded(origin.rpath.as_deref(), origin));
            }
        }
        directories.extend(self.environment.iter().cloned());
        directories.extend(self.expanded(loader.runpath.as_deref(), loader));
        let mut found: Vec<_> = directories.iter().map(|directory| directory.join(name)).collect();
        found.extend(self.cache.get(name).into_iter().flatten().cloned());
        found.extend(self.defaults().iter().map(|directory| Path::new(directory).join(name)));
        found
    }

    /// Splits a search path at its colons, and replaces `$ORIGIN` and `$LIB`.
    fn expanded(&self, path: Option<&str>, origin: &Origin) -> Vec<PathBuf> {
        let directory = origin.directory.to_string_lossy();
        let parts = path.unwrap_or_default().split(':').filter(|part| !part.is_empty());
        let replaced = parts.map(|part| {
            let part = part.replace("${ORIGIN}", &directory).replace("$ORIGIN", &directory);
            part.replace("${LIB}", self.lib()).replace("$LIB", self.lib())
        });
        replaced.map(PathBuf::from).collect()
    }

    /// The value of `$LIB` on Debian and its relatives.
    fn lib(&self) -> &'static str {
        match self.machine {
            Machine::X86_64 => "lib/x86_64-linux-gnu",
            Machine::Aarch64 => "lib/aarch64-linux-gnu",
        }
    }

    fn defaults(&self) -> [&'static str; 7] {
        let (lib, usr) = match self.machine {
            Machine::X86_64 => ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
            Machine::Aarch64 => ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"),
        };
        [lib, usr, "/lib64", "/usr/lib64", "/lib", "/usr/local/lib", "/usr/lib"]
    }
}

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// `struct cache_file_new` and `struct file_entry_new` of glibc.
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;

/// Reads the libraries' names and paths from the linker's cache. An old cache has the new format
/// behind another header.
fn cached(bytes: &[u8]) -> Option<BTreeMap<String, Vec<PathBuf>>> {
    let start = memchr::memmem::find(bytes, MAGIC)?;
    let bytes = &bytes[start..];
    let number = |at: usize| -> Option<usize> {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    let text = |at: usize| -> Option<String> {
        let rest = bytes.get(number(at)?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for index in 0..number(MAGIC.len())? {
        let entry = HEADER_BYTES + index * ENTRY_BYTES;
        found.entry(text(entry + 4)?).or_default().push(text(entry + 8)?.into());
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(directory: &str, rpath: Option<&str>, runpath: Option<&str>) -> Origin {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Origin { directory: directory.into(), rpath: owned(rpath), runpath: owned(runpath) }
    }

    fn search() -> Search {
        let cache = BTreeMap::from([("libx.so".into(), vec![PathBuf::from("/cached/libx.so")])]);
        Search { machine: Machine::X86_64, environment: vec!["/environment".into()], cache }
    }

    fn directories(chain: &[Origin]) -> Vec<String> {
        let found = search().candidates("libx.so", chain);
        let parent = |path: &PathBuf| path.parent().unwrap().display().to_string();
        found.iter().map(parent).take_while(|directory| directory != "/cached").collect()
    }

    #[test]
    fn the_order_is_that_of_the_linker() {
        let program = origin("/bin", Some("$ORIGIN/lib:/r"), None);
        let library = origin("/lib", None, None);
        assert_eq!(directories(std::slice::from_ref(&program)), ["/bin/lib", "/r", "/environment"]);
        // A library inherits the RPATH of the program that loaded it, but no RUNPATH.
        assert_eq!(directories(&[library.clone(), program]), ["/bin/lib", "/r", "/environment"]);
        let program = origin("/bin", Some("/ignored"), Some("${ORIGIN}/../lib"));
        assert_eq!(directories(std::slice::from_ref(&program)), ["/environment", "/bin/../lib"]);
        assert_eq!(directories(&[library, program]), ["/environment"]);
    }

    #[test]
    fn a_name_with_a_slash_is_a_path() {
        let found = search().candidates("./libx.so", &[origin("/bin", Some("/r"), None)]);
        assert_eq!(found, [PathBuf::from("./libx.so")]);
    }

    #[test]
    fn a_damaged_cache_is_ignored() {
        assert!(cached(b"").is_none());
        let mut bytes = MAGIC.to_vec();
        bytes.extend(7_u32.to_ne_bytes());
        assert!(cached(&bytes).is_none());
    }
}
