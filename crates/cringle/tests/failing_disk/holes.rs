//! Direct writes that the file system performs through the page cache: ext4 without extents, where
//! they meet a hole. Their failure is reported once for each open file.

use crate::disk::Disk;
use crate::{Call, PAGE, PAGES, at_once, by_batch, by_fixed, check_from, opened};
use cringle::fs::{File, WriteFlags};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn make_hole(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(PAGE as u64 * PAGES).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn direct_write_into_a_hole_with_dsync_is_durable() {
    let plain: Call<'_> = &|file, page, at| file.write_all_at(page, at);
    let flagged: Call<'_> =
        &|file, page, at| file.write_at_with(page, at, WriteFlags::DSYNC).map(drop);
    let (direct, durable) = (libc::O_DIRECT, libc::O_DIRECT | libc::O_DSYNC);
    Disk::without_extents(|disk| {
        for (name, flags, call) in
            [("O_DSYNC", durable, plain), ("DSYNC", direct, flagged), ("both", durable, flagged)]
        {
            let write_all = |file: &File, round| at_once(file, round, call);
            check_from(disk, name, &opened(flags), make_hole, write_all);
        }
        check_from(disk, "a batch", &opened(durable), make_hole, by_batch);
        check_from(disk, "a registered file", &opened(durable), make_hole, by_fixed);
    });
}
