use super::*;
use crate::crates::CRATES;
use std::path::Path;

fn all() -> impl Iterator<Item = &'static Check> {
    landing::CHECKS.iter().chain(by_path::CHECKS).chain(long::CHECKS)
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = all().map(|check| check.name).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
}

#[test]
fn inputs_of_every_check_exist() {
    let inputs = Repository::here().unwrap().inputs().unwrap();
    for check in by_path::CHECKS.iter().chain(long::CHECKS) {
        assert!(check.packages.len() + check.paths.len() > 0, "{}: no inputs", check.name);
        inputs.of(check).unwrap();
    }
}

#[test]
fn every_check_names_programs_that_exist() {
    let root = Repository::here().unwrap().root;
    let folders = ["crates", "ecosystem"].map(|folder| root.join(folder));
    let packages = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
    let packages: Vec<_> = packages.map(|entry| entry.unwrap().path()).collect();
    let has = |package: &Path, program: &str| {
        let tests = package.join("tests");
        tests.join(format!("{program}.rs")).exists() || tests.join(program).is_dir()
    };
    for check in all() {
        for (at, option) in check.command.match_indices("--test ") {
            let program = check.command[at + option.len()..].split([' ', ';']).next().unwrap();
            let exists = packages.iter().any(|package| has(package, program));
            assert!(exists, "{}: no test is named {program}", check.name);
        }
        for (at, option) in check.command.match_indices("--only ") {
            let programs = check.command[at + option.len()..].split([' ', ';']).next().unwrap();
            for program in programs.split(',') {
                let (of, target) = program.split_once(':').unwrap_or((program, "lib"));
                let package = root.join("crates").join(of);
                let is_lib = target == "lib" && (of == "library" || package.is_dir());
                let exists = program == "doc" || is_lib || has(&package, target);
                assert!(exists, "{}: no test is named {program}", check.name);
            }
        }
    }
}

/// The packages that a command of cargo selects.
fn selected(command: &str) -> Vec<&str> {
    let options = command.match_indices(" -p ").map(|(at, option)| &command[at + option.len()..]);
    options.map(|rest| rest.split([' ', ';']).next().unwrap()).collect()
}

#[test]
fn every_check_selects_packages_that_have_a_row() {
    // Those of the other workspaces have none.
    let others = ["cringle-ecosystem", "cringle-python"];
    for check in all() {
        for name in selected(check.command) {
            let has_row = CRATES.iter().any(|it| it.name() == name);
            let is_other = others.iter().any(|other| name.starts_with(other));
            assert!(has_row || is_other, "{}: no package is named {name}", check.name);
        }
    }
}

#[test]
fn unit_tests_of_each_part_of_the_library_are_compiled_for_musl() {
    let check = long::CHECKS.iter().find(|check| check.name == "musl").unwrap();
    let selected = selected(check.command);
    for it in crate::crates::library() {
        assert!(selected.contains(&it.name()), "musl does not select {}", it.name());
    }
}

#[test]
fn each_part_of_the_library_is_optimised_by_its_settings() {
    let file = Repository::here().unwrap().root.join(".ci/optimized.toml");
    let text = std::fs::read_to_string(file).unwrap();
    for it in crate::crates::library() {
        let row = format!("{} = {{ opt-level = 3, ", it.name());
        assert!(text.lines().any(|line| line.starts_with(&row)), "no row of {}", it.name());
    }
}

#[test]
fn every_check_has_a_row_for_its_promise() {
    let text = std::fs::read_to_string(Repository::here().unwrap().root.join("CONTRIBUTING.md"));
    let text = text.unwrap();
    let (_, table) = text.split_once("\n| promise |").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.contains('|')).collect();
    for (column, checks) in [landing::CHECKS, by_path::CHECKS, long::CHECKS].iter().enumerate() {
        for check in *checks {
            let is_here = |row: &&str| {
                let cell = row.split('|').nth(3 + column);
                cell.is_some_and(|cell| cell.contains(&format!("`{}`", check.name)))
            };
            assert!(rows.iter().any(is_here), "{} is in no row", check.name);
        }
    }
}

/// A repository with one package and an empty record.
fn repository() -> (tempfile::TempDir, Repository) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    let package = "[package]\nname = \"one\"\nedition = \"2024\"\n[workspace]\n";
    for workspace in WORKSPACES {
        let package = package.replace("one", &format!("one{}", workspace.replace('/', "-")));
        let at = root.join(workspace);
        std::fs::create_dir_all(at.join("src")).unwrap();
        std::fs::write(at.join("Cargo.toml"), package).unwrap();
        std::fs::write(at.join("src/lib.rs"), "").unwrap();
    }
    assert!(inputs::git(&root, &["init", "--quiet"]).status().unwrap().success());
    let passed = Passed::read(&root.join("passed")).unwrap();
    (directory, Repository { root, passed, variables: Vec::new() })
}

const CHECK: Check = Check { name: "check", paths: &["src"], ..Check::NONE };

fn run_in(repository: &mut Repository, command: &'static str) -> End {
    let log = repository.root.join("log");
    let check = Check { command, ..CHECK };
    repository.run(&check, &[], &Sink::File(&log), Duration::from_secs(3600)).unwrap().end
}

/// Runs a command as a check. Returns how it ended, and whether it is recorded, which it is only
/// for what its inputs are now.
fn run(command: &'static str) -> (End, bool) {
    let (_directory, mut repository) = repository();
    let end = run_in(&mut repository, command);
    let inputs = repository.inputs().unwrap();
    let is_recorded = repository.passed.seconds("check").is_some();
    let has_passed = repository.has_passed(&Check { command, ..CHECK }, &inputs).unwrap();
    assert_eq!(is_recorded, has_passed);
    (end, is_recorded)
}

#[test]
fn check_that_passes_is_recorded() {
    assert_eq!(run("test -e src/lib.rs"), (End::Passed, true));
}

#[test]
fn check_that_fails_or_is_skipped_is_not_recorded() {
    assert_eq!(run("false"), (End::Failed, false));
    assert_eq!(run("exit 77"), (End::Skipped, false));
}

#[test]
fn inputs_that_change_during_a_check_are_not_recorded() {
    assert_eq!(run("echo '// changed' >src/lib.rs"), (End::Passed, false));
    assert_eq!(run("echo >other"), (End::Passed, true));
}

#[test]
fn nothing_is_recorded_without_git() {
    let (_directory, mut repository) = repository();
    std::fs::remove_dir_all(repository.root.join(".git")).unwrap();
    assert_eq!(run_in(&mut repository, "true"), End::Passed);
    assert_eq!(repository.passed.seconds("check"), None);
}

#[test]
fn missing_programs_are_named() {
    let check = |needs| Check { needs, ..Check::NONE };
    assert_eq!(check(&["sh", "no-such-program", "other"]).lacks(), Some("no-such-program"));
    assert_eq!(check(&["sh"]).lacks(), None);
}

#[test]
fn variables_of_the_caller_may_change_a_result() {
    let check = Check { environment: &[("CRINGLE_FULL", "1"), ("RUSTFLAGS", "")], ..CHECK };
    for name in ["CRINGLE_DRIVER", "CRINGLE_TREES", "CARGO_ENCODED_RUSTFLAGS"] {
        assert!(check.differs_by(name), "{name}");
    }
    for name in ["CRINGLE_FULL", "RUSTFLAGS", "CRINGLE_TOOLS", "HOME", "CARGO_TARGET_DIR"] {
        assert!(!check.differs_by(name), "{name}");
    }
    assert!(CHECK.differs_by("RUSTFLAGS"));
    let (_directory, mut repository) = repository();
    repository.variables = vec!["CRINGLE_DRIVER".to_owned()];
    assert_eq!(run_in(&mut repository, "true"), End::Passed);
    assert_eq!(repository.passed.seconds("check"), None);
    repository.variables = vec!["CRINGLE_TOOLS".to_owned()];
    assert_eq!(run_in(&mut repository, "true"), End::Passed);
    assert!(repository.passed.seconds("check").is_some());
}
