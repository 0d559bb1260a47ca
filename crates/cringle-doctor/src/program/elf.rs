//! Reads the facts of one ELF file: what it is, what it needs, and which names it imports and
//! defines.
//!
//! The file is read whole, and every place in it is checked before it is used: a damaged file is an
//! error.

use super::system_calls;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC,
    FileHeader64,
};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, SectionKind};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::Path;

type Elf<'file, R = &'file [u8]> = ElfFile64<'file, LittleEndian, R>;

/// The architectures on which Cringle runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
}

/// What one file is, and what it needs.
pub(super) struct Identity {
    pub machine: Machine,
    pub is_library: bool,
    pub interpreter: Option<String>,
    pub needed: Vec<String>,
    pub rpath: Option<String>,
    pub runpath: Option<String>,
    pub is_go: bool,
    /// Whether the file has the note of glibc's start files, which a static program has, too.
    pub has_glibc_start: bool,
}

impl Identity {
    pub(super) fn is_static(&self) -> bool {
        !self.is_library && self.needed.is_empty() && self.interpreter.is_none()
    }
}

/// The facts of one file.
pub(super) struct Facts {
    pub identity: Identity,
    /// The names of undefined dynamic symbols. A static program imports nothing: here it has the
    /// names of its symbol table, to which the linker has added what libc itself calls.
    pub imports: BTreeSet<String>,
    /// The names of defined dynamic symbols.
    pub defines: BTreeSet<String>,
    pub allocator: Option<&'static str>,
    /// Whether the names of its own functions have been removed.
    pub is_stripped: bool,
    /// The system call instructions that were found in its code.
    pub system_calls: usize,
}

/// The largest file that is read into memory.
const LARGEST: u64 = 4 << 30;

/// Reads a file. The error names what is wrong with it.
pub(super) fn read(path: &Path) -> Result<Facts, String> {
    check(path)?;
    let bytes = fs::read(path).map_err(unopened)?;
    let machine = machine(&*bytes)?;
    let elf = Elf::parse(&*bytes).map_err(|error| unread(error.into()))?;
    facts(&elf, machine).map_err(unread)
}

/// Reads of a file only what it is.
pub(super) fn identify(path: &Path) -> Result<Identity, String> {
    check(path)?;
    let cache = ReadCache::new(File::open(path).map_err(unopened)?);
    let machine = machine(&cache)?;
    let elf = Elf::parse(&cache).map_err(|error| unread(error.into()))?;
    identity(&elf, machine).map_err(|error| unread(error.into()))
}

fn unopened(error: io::Error) -> String {
    format!("cannot open it: {error}")
}

fn unread(error: Box<dyn Error>) -> String {
    format!("cannot read it: {error}")
}

/// Before the file is opened: to open a FIFO may take for ever.
fn check(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(unopened)?;
    if !metadata.is_file() {
        return Err("it is not a file; give a program or a shared library".into());
    }
    if metadata.len() > LARGEST {
        return Err("it is larger than 4 GiB; remove its debug information (strip -g)".into());
    }
    Ok(())
}

fn machine<'file>(file: impl ReadRef<'file>) -> Result<Machine, String> {
    let wrong = || "it is not a 64-bit ELF file; give a program or a shared library".to_owned();
    let header = FileHeader64::<LittleEndian>::parse(file).map_err(|_| wrong())?;
    let machine = match header.e_machine(LittleEndian) {
        EM_X86_64 => Machine::X86_64,
        EM_AARCH64 => Machine::Aarch64,
        other => return Err(format!("its architecture ({other:?}) is not x86-64 or aarch64")),
    };
    match header.e_type(LittleEndian) {
        ET_EXEC | ET_DYN => Ok(machine),
        _ => Err("it is an object file; give a linked program or shared library".into()),
    }
}

fn identity<'file, R: ReadRef<'file>>(
    elf: &Elf<'file, R>,
    machine: Machine,
) -> object::Result<Identity> {
    let interpreter = interpreter(elf)?;
    let dynamic = Dynamic::of(elf)?;
    let is_program = elf.elf_header().e_type(LittleEndian) == ET_EXEC;
    let has_section = |name| elf.section_by_name(name).is_some();
    Ok(Identity {
        machine,
        is_library: !is_program && !dynamic.is_pie && interpreter.is_none(),
        interpreter,
        needed: dynamic.needed,
        rpath: dynamic.rpath,
        runpath: dynamic.runpath,
        is_go: has_section(".go.buildinfo") || has_section(".note.go.buildid"),
        has_glibc_start: has_section(".note.ABI-tag"),
    })
}

fn facts(elf: &Elf, machine: Machine) -> Result<Facts, Box<dyn Error>> {
    let identity = identity(elf, machine)?;
    let has_imports = identity.interpreter.is_none() || elf.dynamic_symbol_table().is_some();
    if !has_imports || elf.sections().next().is_none() {
        return Err("it has no section headers, which name its imports; give the program as the \
             linker wrote it"
            .into());
    }
    let (mut imports, mut defines) = (BTreeSet::new(), BTreeSet::new());
    for symbol in elf.dynamic_symbols() {
        let set = if symbol.is_undefined() { &mut imports } else { &mut defines };
        set.insert(symbol.name()?.to_owned());
    }
    let own = elf.symbols().filter(ObjectSymbol::is_definition);
    let own: BTreeSet<_> = own.filter_map(|symbol| symbol.name().ok()).collect();
    let is_stripped = elf.symbols().next().is_none();
    let system_calls = system_calls(elf, identity.machine)?;
    let mut facts =
        Facts { identity, imports, defines, allocator: None, is_stripped, system_calls };
    facts.allocator = allocator(&own, &facts);
    if facts.identity.is_static() {
        facts.imports.extend(own.into_iter().map(str::to_owned));
    }
    Ok(facts)
}

fn system_calls(elf: &Elf, machine: Machine) -> object::Result<usize> {
    let code = elf.sections().filter(|section| section.kind() == SectionKind::Text);
    code.map(|section| Ok(system_calls::count(section.data()?, machine))).sum()
}

fn interpreter<'file, R: ReadRef<'file>>(elf: &Elf<'file, R>) -> object::Result<Option<String>> {
    for header in elf.elf_program_headers() {
        if let Some(path) = header.interpreter(LittleEndian, elf.data())? {
            return Ok(Some(String::from_utf8_lossy(path).into_owned()));
        }
    }
    Ok(None)
}

/// The entries of the dynamic section that matter here.
#[derive(Default)]
struct Dynamic {
    needed: Vec<String>,
    rpath: Option<String>,
    runpath: Option<String>,
    is_pie: bool,
}

impl Dynamic {
    fn of<'file, R: ReadRef<'file>>(elf: &Elf<'file, R>) -> object::Result<Dynamic> {
        let mut found = Dynamic::default();
        let table = elf.elf_dynamic_table()?;
        for entry in &table {
            let text = || Ok(String::from_utf8_lossy(table.string(entry)?).into_owned());
            match entry.tag {
                DT_NEEDED => found.needed.push(text()?),
                DT_RPATH => found.rpath = Some(text()?),
                DT_RUNPATH => found.runpath = Some(text()?),
                DT_FLAGS_1 => found.is_pie = entry.val & DF_1_PIE.0 != 0,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// Memory allocators by a symbol that only they define, and by their library.
const ALLOCATORS: [(&str, &[&str], &str); 3] = [
    ("jemalloc", &["_rjem_mallctl", "je_mallctl", "mallctl"], "libjemalloc.so"),
    ("mimalloc", &["mi_malloc", "_mi_malloc_generic"], "libmimalloc.so"),
    ("tcmalloc", &["tc_malloc", "TCMallocInternalMalloc"], "libtcmalloc"),
];

fn allocator(own: &BTreeSet<&str>, facts: &Facts) -> Option<&'static str> {
    let is_used = |(_, symbols, library): &&(_, &[&str], &str)| {
        symbols.iter().any(|name| own.contains(name) || facts.defines.contains(*name))
            || facts.identity.needed.iter().any(|name| name.starts_with(library))
    };
    ALLOCATORS.iter().find(is_used).map(|(name, ..)| *name)
}
