use super::*;
use std::fs;

/// A repository with a workspace of three packages, `top` → `middle` → `base`, of which `middle`
/// uses `helper` in its tests, and a workspace of its own, `outer` → `base`.
struct Repository(tempfile::TempDir);

const CHECK: Check = Check {
    name: "check",
    about: "",
    environment: &[("A", "1")],
    command: "true",
    packages: &["top"],
    paths: &["notes"],
    needs: &[],
    minutes: 1,
};

impl Repository {
    fn new() -> Repository {
        let it = Repository(tempfile::tempdir().unwrap());
        it.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
        it.write("Cargo.lock", "version = 4\n");
        it.write(".gitignore", "target/\n");
        it.write("notes/a.txt", "a");
        it.write("other/b.txt", "b");
        let path = |name: &str| format!("{name} = {{ path = \"../{name}\" }}\n");
        it.package("crates/base", "base", "");
        it.package("crates/helper", "helper", "");
        let for_tests = format!("[dev-dependencies]\n{}", path("helper"));
        let middle = format!("[dependencies]\n{}{for_tests}", path("base"));
        it.package("crates/middle", "middle", &middle);
        it.package("crates/top", "top", &format!("[dependencies]\n{}", path("middle")));
        it.package(
            "outer",
            "outer",
            "[dependencies]\nbase = { path = \"../crates/base\" }\n[workspace]\n",
        );
        it.write("outer/Cargo.lock", "version = 4\n");
        it.git(&["init", "--quiet"]);
        it.commit();
        it
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn package(&self, at: &str, name: &str, dependencies: &str) {
        let head = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
        self.write(&format!("{at}/Cargo.toml"), &format!("{head}{dependencies}"));
        self.write(&format!("{at}/src/lib.rs"), "");
        self.write(&format!("{at}/tests/test.rs"), "");
    }

    fn git(&self, arguments: &[&str]) {
        let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        output(git(self.0.path(), &user).args(arguments)).unwrap();
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=change"]);
    }

    fn inputs(&self) -> Inputs {
        Inputs::read(self.0.path(), &["", "outer"]).unwrap()
    }

    fn of(&self, check: &Check) -> String {
        self.inputs().of(check).unwrap()
    }

    /// Whether the inputs of the check differ after this file is written.
    #[track_caller]
    fn depends_on(&self, check: &Check, path: &str) -> bool {
        let before = self.of(check);
        let old = fs::read_to_string(self.0.path().join(path)).ok();
        self.write(path, &format!("{}# changed\n", old.clone().unwrap_or_default()));
        let after = self.of(check);
        match old {
            Some(old) => self.write(path, &old),
            None => fs::remove_file(self.0.path().join(path)).unwrap(),
        }
        assert_eq!(self.of(check), before, "restored");
        before != after
    }
}

#[test]
fn files_of_the_package_are_inputs() {
    let repository = Repository::new();
    for path in ["src/lib.rs", "tests/test.rs", "tests/new.rs", "Cargo.toml"] {
        assert!(repository.depends_on(&CHECK, &format!("crates/top/{path}")), "{path}");
    }
}

#[test]
fn libraries_that_a_package_depends_on_are_inputs() {
    let repository = Repository::new();
    for path in ["crates/middle/src/lib.rs", "crates/base/src/lib.rs", "crates/base/Cargo.toml"] {
        assert!(repository.depends_on(&CHECK, path), "{path}");
    }
    for path in ["crates/middle/tests/test.rs", "crates/base/tests/new.rs"] {
        assert!(!repository.depends_on(&CHECK, path), "{path}: tests of another package");
    }
    assert!(!repository.depends_on(&CHECK, "crates/helper/src/lib.rs"), "for other tests");
    let middle = Check { packages: &["middle"], ..CHECK };
    assert!(repository.depends_on(&middle, "crates/helper/src/lib.rs"), "for its tests");
}

#[test]
fn packages_of_another_workspace_are_followed() {
    let repository = Repository::new();
    let outer = Check { packages: &["outer"], ..CHECK };
    for path in ["crates/base/src/lib.rs", "outer/Cargo.lock", "outer/src/lib.rs", "Cargo.toml"] {
        assert!(repository.depends_on(&outer, path), "{path}");
    }
    for path in ["crates/middle/src/lib.rs", "Cargo.lock"] {
        assert!(!repository.depends_on(&outer, path), "{path}");
    }
}

#[test]
fn manifest_lock_and_named_paths_are_inputs() {
    let repository = Repository::new();
    for path in ["Cargo.toml", "Cargo.lock", "notes/a.txt", "notes/new.txt"] {
        assert!(repository.depends_on(&CHECK, path), "{path}");
    }
}

#[test]
fn settings_of_the_workspace_and_of_the_root_are_inputs() {
    let repository = Repository::new();
    let outer = Check { packages: &["outer"], ..CHECK };
    for path in [".cargo/config.toml", "rust-toolchain.toml", "clippy.toml"] {
        assert!(repository.depends_on(&CHECK, path), "{path}");
        assert!(repository.depends_on(&outer, path), "{path}");
        assert!(repository.depends_on(&outer, &format!("outer/{path}")), "outer/{path}");
        assert!(!repository.depends_on(&CHECK, &format!("outer/{path}")), "outer/{path}");
    }
}

#[test]
fn files_of_the_command_are_inputs() {
    let repository = Repository::new();
    for command in ["other/b.txt it", "true; A=$(cat other/b.txt)", "sh -e \"other/b.txt\""] {
        let check = Check { command, ..CHECK };
        assert!(repository.depends_on(&check, "other/b.txt"), "{command}");
    }
    let check = Check { command: "cd other; b.txt", ..CHECK };
    assert!(!repository.depends_on(&check, "other/b.txt"), "a word without a folder");
}

#[test]
fn unrelated_and_ignored_files_are_no_inputs() {
    let repository = Repository::new();
    for path in ["other/b.txt", "outer/src/lib.rs", "README.md", "crates/top/target/new"] {
        assert!(!repository.depends_on(&CHECK, path), "{path}");
    }
}

#[test]
fn command_and_environment_are_inputs() {
    let repository = Repository::new();
    let of = |check| repository.of(&check);
    assert_ne!(of(CHECK), of(Check { command: "false", ..CHECK }));
    assert_ne!(of(CHECK), of(Check { environment: &[], ..CHECK }));
    assert_eq!(of(CHECK), of(Check { about: "another text", minutes: 2, ..CHECK }));
}

#[test]
fn commit_of_the_contents_changes_nothing() {
    let repository = Repository::new();
    repository.write("crates/top/src/lib.rs", "// changed\n");
    repository.write("crates/top/src/new.rs", "");
    let before = repository.of(&CHECK);
    repository.commit();
    assert_eq!(repository.of(&CHECK), before);
}

#[test]
fn a_change_in_the_moment_of_a_commit_is_seen() {
    let repository = Repository::new();
    // Of all that git compares, only the time of the content, which is the index's as well.
    repository.git(&["config", "core.trustctime", "false"]);
    repository.git(&["config", "core.checkStat", "minimal"]);
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
    let root = repository.0.path();
    let set_time = |path: &str| {
        let file = fs::OpenOptions::new().write(true).open(root.join(path)).unwrap();
        file.set_modified(time).unwrap();
    };
    repository.write("notes/a.txt", "old");
    set_time("notes/a.txt");
    repository.commit();
    set_time(".git/index");
    let before = repository.of(&CHECK);
    repository.write("notes/a.txt", "new");
    set_time("notes/a.txt");
    assert_ne!(repository.of(&CHECK), before);
}

#[test]
fn reading_leaves_the_repository_as_it_was() {
    let repository = Repository::new();
    repository.write("crates/top/src/lib.rs", "// changed\n");
    let state = || {
        let git = |arguments| output(&mut git(repository.0.path(), arguments)).unwrap();
        (git(&["status", "--porcelain"]), git(&["count-objects"]))
    };
    let before = state();
    repository.inputs();
    assert_eq!(state(), before);
    assert!(before.0.contains(" M crates/top/src/lib.rs"), "{}", before.0);
}

#[test]
fn unknown_names_are_errors() {
    let inputs = Repository::new().inputs();
    assert!(inputs.of(&Check { packages: &["no-such-package"], ..CHECK }).is_err());
    assert!(inputs.of(&Check { paths: &["no/such/path"], ..CHECK }).is_err());
}
