//! Describes in one line the driver that a runtime gets from this kernel.

use crate::Result;
use cringle::runtime::{Driver, Feature};

/// Prints the line. Returns `false` if no runtime starts; the line then has the error.
pub(crate) fn describe() -> Result<bool> {
    let driver = cringle::Builder::new().workers(1).run(cringle::runtime::driver);
    match &driver {
        Ok(Driver::Uring(features)) => {
            let missing = Feature::ALL.into_iter().filter(|feature| !features.has(*feature));
            let missing: Vec<String> = missing.map(|feature| format!("{feature:?}")).collect();
            let names = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
            println!("ring features missing: {names}");
        }
        Ok(Driver::Epoll(why)) => println!("epoll: {why}"),
        Ok(other) => println!("no ring; driver: {other:?}"),
        Err(error) => println!("no ring: {error}"),
    }
    Ok(driver.is_ok())
}
