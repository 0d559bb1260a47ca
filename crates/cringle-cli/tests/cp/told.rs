//! What is told beside GNU's words: the summary, the dry run.

use crate::common::*;
use crate::support::*;
use crate::trees::random_tree;

#[test]
fn the_summary_and_the_dry_run_are_true() {
    let place = place("cp-summary");
    random_tree(&place.join("tree"), 9);
    let mut command = ours();
    let report = json(command.args(["-r", "tree", "copy"]).current_dir(&place));
    assert_eq!((report["schema"].as_u64(), report["status"].as_u64()), (Some(1), Some(0)));
    assert!(report["files"].as_u64().unwrap() > 5);
    let mut command = ours();
    command.args(["-r", "--dry-run", "tree", "not-made"]);
    let said = output_of(command, &place, b"");
    assert_eq!(said.status.code(), Some(0));
    assert!(!lines(&said.stdout).is_empty());
    assert!(!place.join("not-made").exists());
}
