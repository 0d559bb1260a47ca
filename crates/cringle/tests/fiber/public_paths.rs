//! Every public path of `cringle`, modules and variants included, one `use` each: the program
//! compiles only if all of them exist. A path that is removed on purpose is removed from the list,
//! too.
//!
//! The list was made of rustdoc's JSON at commit 8a68dfc5e1b0, before the library was divided into
//! crates. Items that are hidden from the documentation are not in it.

#![allow(unused_imports, deprecated)]

macro_rules! paths {
    ($($first:ident $(::$next:ident)*;)*) => {
        $(const _: () = { use $first $(::$next)*; };)*
    };
}

include!("public_paths.list");
