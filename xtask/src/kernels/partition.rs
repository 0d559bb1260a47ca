//! Makes a disk with one partition, which the kernel finds by the partition's UUID, whatever number
//! the disk has.

use crate::Result;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIGNATURE: u32 = 0x6372_6e67;

/// The partition's UUID for the kernel: the signature of the disk, and the number of the partition.
pub(super) const UUID: &str = "63726e67-01";

/// The offset of the partition, in bytes.
pub(super) const START: u32 = 1 << 20;

const SECTOR: u32 = 512;

/// Creates the disk with an empty partition.
pub(super) fn table(disk: &Path, partition_mib: u32) -> Result<()> {
    let file = File::create_new(disk)?;
    file.set_len((u64::from(partition_mib) << 20) + u64::from(START))?;
    let mut sector = [0; SECTOR as usize];
    sector[440..444].copy_from_slice(&SIGNATURE.to_le_bytes());
    sector[450] = 0x83; // Linux
    sector[454..458].copy_from_slice(&(START / SECTOR).to_le_bytes());
    sector[458..462].copy_from_slice(&(partition_mib * ((1 << 20) / SECTOR)).to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    Ok(file.write_all_at(&sector, 0)?)
}
