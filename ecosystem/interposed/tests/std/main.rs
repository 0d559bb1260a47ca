//! Programs in the manner of std's documentation, with std's imports, on many fibers at once.

cringle_interpose::install!();

/// A test for each of the programs, which runs it as each job of a crowd.
macro_rules! programs {
    ($($name:ident),*) => {
        mod jobs {
            $(
                #[test]
                fn $name() {
                    let jobs = cringle_ecosystem_interposed::at_most(1000);
                    let name = concat!("std: ", stringify!($name));
                    cringle_ecosystem_interposed::crowd(name, jobs, super::$name);
                }
            )*
        }
    };
}
pub(crate) use programs;

mod channels;
mod files;
mod locks;
mod sockets;
