//! `crates/cringle-c/include/cringle.h` is the header of that crate's source.

use std::path::Path;

#[test]
fn header_is_current() {
    let crate_dir = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/cringle-c");
    let path = crate_dir.join("include/cringle.h");
    let mut generated = Vec::new();
    cbindgen::generate(crate_dir).expect("the header can be generated").write(&mut generated);
    let generated = String::from_utf8(generated).expect("the header is text");
    // A section of Rust's documentation.
    let generated = generated.replace(" * # Safety\n *\n * ", " * The caller ensures: ");
    if std::env::var_os("CRINGLE_BLESS").is_some() {
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == generated,
        "{} is not current: cd ecosystem; CRINGLE_BLESS=1 cargo test -p cringle-ecosystem-header",
        path.display()
    );
}
