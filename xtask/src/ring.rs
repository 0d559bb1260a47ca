//! What a runtime gets from this kernel, in one line.

use crate::Result;
use cringle::runtime::{Driver, Feature};

/// `false` where there is no runtime at all; the line says why.
pub(crate) fn describe() -> Result<bool> {
    let driver = cringle::Builder::new().workers(1).run(cringle::runtime::driver);
    match &driver {
        Ok(Driver::Uring(features)) => {
            let missing = Feature::ALL.into_iter().filter(|feature| !features.has(*feature));
            let missing: Vec<String> = missing.map(|feature| format!("{feature:?}")).collect();
            let words = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
            println!("ring features missing: {words}");
        }
        Ok(Driver::Epoll(why)) => println!("epoll: {why}"),
        Ok(other) => println!("no ring; driver: {other:?}"),
        Err(error) => println!("no ring: {error}"),
    }
    Ok(driver.is_ok())
}
