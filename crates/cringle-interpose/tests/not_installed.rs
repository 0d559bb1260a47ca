//! A program that depends on the crate and does not call `install!`. It is a program of its own
//! because `install!` defines symbols of a whole program.

use cringle_interpose as _;

#[test]
fn a_dependency_alone_interposes_nothing() {
    for name in [c"read", c"pread64", c"connect", c"pthread_mutex_unlock", c"syscall", c"vfork"] {
        // SAFETY: the names are C strings.
        let (first, next) = unsafe {
            let name = name.as_ptr();
            (libc::dlsym(libc::RTLD_DEFAULT, name), libc::dlsym(libc::RTLD_NEXT, name))
        };
        assert!(!next.is_null());
        assert_eq!(first, next, "{name:?} is interposed");
    }
    assert!(!cringle_interpose::__private::is_interposed());
}

#[test]
fn threads_cannot_be_fibers() {
    let builder = cringle::Builder::new().threads(cringle::runtime::Threads::Fibers);
    let error = builder.run(|| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("install!"), "{error}");
}
