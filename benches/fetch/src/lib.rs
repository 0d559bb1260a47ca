//! What the two clients have in common: see `bin`.

use std::{env, fs};

/// Returns an environment variable, unless it is empty.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What the command line says: `URL COUNT LIMIT [CERTIFICATE]`.
pub struct Job {
    pub url: String,
    /// The number of requests, and of those at once.
    pub count: usize,
    pub limit: usize,
    /// The only certificate that the client trusts, as PEM.
    pub certificate: Option<Vec<u8>>,
}

impl Job {
    /// Reads the command line.
    ///
    /// # Panics
    ///
    /// If it is wrong, or the certificate cannot be read.
    pub fn from_args() -> Job {
        let args: Vec<String> = env::args().skip(1).collect();
        let [url, count, limit, certificate @ ..] = &args[..] else {
            panic!("usage: URL COUNT LIMIT [CERTIFICATE]");
        };
        let number = |text: &String| text.parse().expect("a number");
        Job {
            url: url.clone(),
            count: number(count),
            limit: number(limit),
            certificate: certificate.first().map(|path| fs::read(path).expect("a certificate")),
        }
    }

    /// Prints the number of bytes of all bodies, and the peak of resident memory.
    ///
    /// # Panics
    ///
    /// If `/proc` is missing.
    pub fn report(&self, bytes: usize) {
        let status = fs::read_to_string("/proc/self/status").expect("a mounted /proc");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        println!("{bytes} bytes, peak {}", peak.expect("Linux reports it").trim());
    }
}
