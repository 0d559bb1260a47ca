//! Structures that grow: the caller's version may be older or newer than the library's.

use crate::abi::{cringle_params, cringle_stats};
use crate::error::Error;
use std::mem::offset_of;

/// The size of the first version of `cringle_params`.
const PARAMS_V1: usize = 24;
const _: () = assert!(size_of::<cringle_params>() == PARAMS_V1);
/// The size of the first version of `cringle_stats`.
const STATS_V1: usize = 80;
const _: () = assert!(size_of::<cringle_stats>() == STATS_V1);

/// Copies the caller's parameters. Fields that the caller does not have are 0. Fields that the
/// library does not have must be 0.
///
/// # Safety
///
/// `params` is null, or points to a structure with the size that its first field states (0: that of
/// the first version).
pub(crate) unsafe fn read_params(params: *const cringle_params) -> Result<cringle_params, Error> {
    const OWN: usize = size_of::<cringle_params>();
    let mut own = cringle_params::default();
    if params.is_null() {
        return Ok(own);
    }
    // SAFETY: this function's contract: the structure has this field.
    let stated = unsafe { params.cast::<u32>().read_unaligned() } as usize;
    let size = if stated == 0 { PARAMS_V1 } else { stated };
    if !(PARAMS_V1..=4096).contains(&size) {
        let text = format!(
            "params.size is {stated}: set it to sizeof(struct cringle_params), or to 0 for the \
             fields of the first version"
        );
        return Err(Error::new(libc::EINVAL, text));
    }
    // SAFETY: this function's contract; both structures have the bytes.
    unsafe {
        let from = params.cast::<u8>();
        from.copy_to_nonoverlapping((&raw mut own).cast(), size.min(OWN));
        if (OWN..size).any(|at| from.add(at).read() != 0) {
            let text = "params has fields that are not 0 and that this version does not know: \
                        install a newer library, or set them to 0";
            return Err(Error::new(libc::E2BIG, text));
        }
    }
    Ok(own)
}

/// Copies the counters to the caller's structure. Fields that the library does not have are set
/// to 0.
///
/// # Safety
///
/// `out` points to a structure with the size that its first field states.
pub(crate) unsafe fn write_stats(
    stats: &cringle_stats,
    out: *mut cringle_stats,
) -> Result<(), Error> {
    const OWN: usize = size_of::<cringle_stats>();
    const FIRST: usize = offset_of!(cringle_stats, submissions);
    // SAFETY: this function's contract: the structure has this field.
    let size = unsafe { out.cast::<u64>().read_unaligned() } as usize;
    if !(STATS_V1..=4096).contains(&size) {
        let text = format!("stats->size is {size}: set it to sizeof(struct cringle_stats)");
        return Err(Error::new(libc::EINVAL, text));
    }
    // SAFETY: this function's contract; both structures have the bytes.
    unsafe {
        let (from, to) = ((&raw const *stats).cast::<u8>(), out.cast::<u8>());
        to.add(FIRST).copy_from_nonoverlapping(from.add(FIRST), size.min(OWN) - FIRST);
        if size > OWN {
            to.add(OWN).write_bytes(0, size - OWN);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters as the caller of another version may have them.
    #[repr(C, align(8))]
    struct Bytes([u8; 64]);

    fn read(size: u32, set: &[(usize, u8)]) -> Result<cringle_params, Error> {
        let mut bytes = Bytes([0; 64]);
        bytes.0[..4].copy_from_slice(&size.to_ne_bytes());
        set.iter().for_each(|&(at, value)| bytes.0[at] = value);
        // SAFETY: the sizes of the tests are at most 64.
        unsafe { read_params((&raw const bytes.0).cast()) }
    }

    #[test]
    fn parameters_of_other_versions_are_understood() {
        assert_eq!(read(0, &[(8, 3)]).unwrap().workers, 3);
        assert_eq!(read(24, &[(20, 2)]).unwrap().driver, 2);
        assert_eq!(read(64, &[(8, 3)]).unwrap().workers, 3);
        let newer = read(64, &[(8, 3), (63, 1)]).map(|_| ()).unwrap_err();
        assert!(format!("{newer:?}").contains("newer library"), "{newer:?}");
        for size in [1, 23, 4097, u32::MAX] {
            assert!(read(size, &[]).is_err(), "{size}");
        }
    }
}
