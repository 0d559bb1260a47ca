//! Reads the facts of one ELF file: what it needs, imports and defines, and what its code contains.

use super::inline::{self, Function, Inline, Machine};
use memchr::memmem;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC,
    FileHeader64, SHF_ALLOC, SHF_EXECINSTR,
};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, ReadCache, SectionFlags, elf};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

type Elf<'file> = ElfFile64<'file, LittleEndian, &'file ReadCache<File>>;

/// The facts of one file.
pub(super) struct Facts {
    pub machine: Machine,
    pub is_library: bool,
    pub interpreter: Option<String>,
    pub needed: Vec<String>,
    pub rpath: Option<String>,
    pub runpath: Option<String>,
    /// The names of undefined dynamic symbols.
    pub imports: BTreeSet<String>,
    /// The names of defined dynamic symbols.
    pub defines: BTreeSet<String>,
    pub allocator: Option<&'static str>,
    pub is_go: bool,
    pub inline: Vec<Inline>,
    /// Whether the names of its own functions have been removed.
    pub is_stripped: bool,
    /// Whether the file has a name that glibc reads from the environment, as in a static program.
    pub contains_glibc: bool,
}

/// Reads a file. The error names what is wrong with it.
pub(super) fn read(path: &Path) -> Result<Facts, String> {
    let file = File::open(path).map_err(|error| format!("cannot open it: {error}"))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is not a file; give a program or a shared library".into());
    }
    let cache = ReadCache::new(file);
    let machine = machine(&cache)?;
    let elf = Elf::parse(&cache).map_err(|error| format!("cannot read it: {error}"))?;
    facts(&elf, machine).map_err(|error| format!("cannot read it: {error}"))
}

fn machine(cache: &ReadCache<File>) -> Result<Machine, String> {
    let wrong = || "it is not a 64-bit ELF file; give a program or a shared library".to_owned();
    let header = FileHeader64::<LittleEndian>::parse(cache).map_err(|_| wrong())?;
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

fn facts(elf: &Elf, machine: Machine) -> object::Result<Facts> {
    let interpreter = interpreter(elf)?;
    let dynamic = Dynamic::of(elf)?;
    let (mut imports, mut defines) = (BTreeSet::new(), BTreeSet::new());
    for symbol in elf.dynamic_symbols() {
        let set = if symbol.is_undefined() { &mut imports } else { &mut defines };
        set.insert(symbol.name()?.to_owned());
    }
    let functions = functions(elf);
    let is_program = elf.elf_header().e_type(LittleEndian) == ET_EXEC;
    Ok(Facts {
        machine,
        is_library: !is_program && !dynamic.is_pie && interpreter.is_none(),
        interpreter,
        allocator: allocator(elf, &dynamic.needed),
        needed: dynamic.needed,
        rpath: dynamic.rpath,
        runpath: dynamic.runpath,
        imports,
        defines,
        is_go: [".go.buildinfo", ".note.go.buildid"]
            .iter()
            .any(|name| elf.section_by_name(name).is_some()),
        inline: inline_calls(elf, machine, &functions)?,
        is_stripped: elf.symbols().next().is_none(),
        contains_glibc: contains(elf, b"GLIBC_TUNABLES"),
    })
}

fn interpreter(elf: &Elf) -> object::Result<Option<String>> {
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
    fn of(elf: &Elf) -> object::Result<Dynamic> {
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

/// The functions with names, sorted by address: those of the symbol table, or else the exported
/// ones.
fn functions(elf: &Elf) -> Vec<Function> {
    let named = |symbol: object::read::elf::ElfSymbol64<'_, '_, LittleEndian, _>| {
        let name = symbol.name().ok().filter(|_| symbol.is_definition() && symbol.size() > 0)?;
        let name = format!("{:#}", rustc_demangle::demangle(name));
        Some(Function { address: symbol.address(), size: symbol.size(), name })
    };
    let mut functions: Vec<_> = elf.symbols().filter_map(named).collect();
    if functions.is_empty() {
        functions = elf.dynamic_symbols().filter_map(named).collect();
    }
    functions.sort_by_key(|function| function.address);
    functions
}

fn inline_calls(
    elf: &Elf,
    machine: Machine,
    functions: &[Function],
) -> object::Result<Vec<Inline>> {
    let mut found = BTreeMap::new();
    for section in elf.sections().filter(|section| has_flags(section, SHF_EXECINSTR)) {
        inline::find(machine, section.data()?, section.address(), functions, &mut found);
    }
    Ok(found.into_values().collect())
}

fn has_flags<'file>(section: &impl ObjectSection<'file>, flags: elf::SectionFlags) -> bool {
    matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags & flags == flags)
}

/// Memory allocators by a symbol that only they define, and by their library.
const ALLOCATORS: [(&str, &[&str], &str, &[u8]); 3] = [
    ("jemalloc", &["_rjem_mallctl", "je_mallctl", "mallctl"], "libjemalloc.so", b"<jemalloc>: "),
    ("mimalloc", &["mi_malloc", "_mi_malloc_generic"], "libmimalloc.so", b"mimalloc: "),
    ("tcmalloc", &["tc_malloc", "TCMallocInternalMalloc"], "libtcmalloc", b"tcmalloc: "),
];

fn allocator(elf: &Elf, needed: &[String]) -> Option<&'static str> {
    let is_stripped = elf.symbols().next().is_none();
    let defined: BTreeSet<_> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    let is_used = |(_, symbols, library, text): &&(_, &[&str], &str, &[u8])| {
        symbols.iter().any(|name| defined.contains(name))
            || needed.iter().any(|name| name.starts_with(library))
            // A program that is not stripped has the symbols if it has the allocator.
            || is_stripped && contains(elf, text)
    };
    ALLOCATORS.iter().find(is_used).map(|(name, ..)| *name)
}

/// Whether the data of the file contains these bytes.
fn contains(elf: &Elf, text: &[u8]) -> bool {
    elf.sections()
        .filter(|section| has_flags(section, SHF_ALLOC) && !has_flags(section, SHF_EXECINSTR))
        .filter_map(|section| section.data().ok())
        .any(|data| memmem::find(data, text).is_some())
}
