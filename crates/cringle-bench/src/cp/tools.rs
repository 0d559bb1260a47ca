//! The copy commands that are compared, and their command lines.

use super::args::{CpArgs, Regime};
use crate::experiment::{Named, Notes};
use cringle_report::failure::{Failure, fail};
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KNOWN: [&str; 7] = ["cp", "cringle", "rsync", "tar", "cpz", "fcp", "xcp"];

const TAR: &str = r#"mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xf -"#;
/// Syncs each file and directory of a copy.
const FSYNC_EACH: &str = r#"find "$2" -exec sync {} +"#;

/// An installed command.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    /// The first line that `--version` prints.
    version: Option<String>,
    /// Run by `sh`, with the tree as `$1` and the copy as `$2`.
    script: String,
    /// Whether it has an option `--fsync`.
    fsync: bool,
}

/// A tool as it is used in one table: a row of that table.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) label: String,
    pub(super) tool: String,
    pub(super) version: Option<String>,
    script: String,
    /// Whether a sync of each file and directory follows.
    fsync_each: bool,
    /// Whether a sync of the file system follows, within the measured time.
    pub(super) then_sync: bool,
    /// Why it has failed. It has no samples then.
    pub(super) error: Option<String>,
}

impl Named for Candidate {
    fn name(&self) -> String {
        self.label.clone()
    }
}

/// Returns the chosen tools, in the order of the help. Leaves out a tool that is not installed, and
/// fails if the command line names it.
pub(super) fn chosen(args: &CpArgs, notes: &mut Notes) -> Result<Vec<Tool>, Failure> {
    let own = args.tool.iter().map(|text| custom(text)).collect::<Result<Vec<_>, _>>()?;
    for name in &args.tools {
        if !KNOWN.contains(&name.as_str()) && !own.iter().any(|tool| tool.name == *name) {
            return Err(Failure::usage(format!(
                "--tools names `{name}`, which is none of {} and not given by --tool \
                {name}=COMMAND",
                KNOWN.join(", ")
            )));
        }
    }
    let is_named = |name: &str| args.tools.iter().any(|tool| tool == name);
    let mut tools = Vec::new();
    let (mut absent, replaced) = (Vec::new(), |name: &str| own.iter().any(|t| t.name == name));
    for name in KNOWN.into_iter().filter(|name| args.tools.is_empty() || is_named(name)) {
        match known(name) {
            _ if replaced(name) => {}
            Ok(tool) => tools.push(tool),
            Err(why) if is_named(name) => return fail(format!("--tools names {name}: {why}")),
            Err(why) if name == "cringle" => notes.add(format!("cringle cp is left out: {why}")),
            Err(_) => absent.push(name),
        }
    }
    if !absent.is_empty() {
        notes.add(format!("not installed and therefore left out: {}", absent.join(", ")));
    }
    tools.extend(own.into_iter().filter(|tool| args.tools.is_empty() || is_named(&tool.name)));
    Ok(tools)
}

/// Returns one of the [`KNOWN`] tools, or why it cannot be run.
fn known(name: &str) -> Result<Tool, String> {
    let program: PathBuf = match name {
        "cringle" => this_program()?,
        _ => on_path(name).ok_or("it is not on PATH")?,
    };
    let arguments = match name {
        "cp" => r#"-r "$1" "$2""#,
        "cringle" => r#"cp -r "$1" "$2""#,
        // With the slash, rsync copies the content of the directory.
        "rsync" => r#"-a "$1"/ "$2""#,
        "xcp" => r#"--no-progress -r "$1" "$2""#,
        _ => r#""$1" "$2""#,
    };
    let quoted = program.to_str().map(shell_words::quote).ok_or("its path is not UTF-8")?;
    let help: &[&str] = if name == "cringle" { &["cp", "--help"] } else { &["--help"] };
    Ok(Tool {
        name: name.into(),
        version: first_line(&output_of(&program, &["--version"])),
        script: if name == "tar" { TAR.into() } else { format!("{quoted} {arguments}") },
        fsync: matches!(name, "cringle" | "rsync" | "xcp")
            && output_of(&program, help).is_some_and(|help| help.contains("--fsync")),
    })
}

/// Returns this executable, if it has the subcommand `cp`.
fn this_program() -> Result<PathBuf, String> {
    let program =
        env::current_exe().map_err(|error| format!("cannot find this executable: {error}"))?;
    match output_of(&program, &["cp", "--help"]) {
        Some(_) => Ok(program),
        None => Err("this build has no `cp` command".into()),
    }
}

/// Parses `NAME=COMMAND`.
fn custom(text: &str) -> Result<Tool, Failure> {
    let (name, command) = text.split_once('=').unwrap_or((text, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(is_name) || command.trim().is_empty() {
        return Err(Failure::usage(format!(
            "--tool {text}: write it as NAME=COMMAND, for example 'cpx=cpx -r {{src}} {{dst}}'"
        )));
    }
    let mut script = command.replace("{src}", "\"$1\"").replace("{dst}", "\"$2\"");
    if script == command {
        script.push_str(" \"$1\" \"$2\"");
    }
    Ok(Tool { name: name.into(), version: None, script, fsync: false })
}

/// Returns the executable that a shell would run, except this program under another name.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let this = env::current_exe().and_then(std::fs::canonicalize).ok();
    let is_other = |file: &PathBuf| file.canonicalize().ok() != this;
    let executable = |file: &PathBuf| {
        file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| executable(file) && is_other(file))
}

/// Returns the standard output of a program, if it succeeds.
fn output_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn first_line(text: &Option<String>) -> Option<String> {
    Some(text.as_ref()?.lines().next()?.trim().to_string()).filter(|line| !line.is_empty())
}

/// Returns the rows of a table.
pub(super) fn candidates(tools: &[Tool], regime: Regime) -> Vec<Candidate> {
    let mut all = Vec::new();
    for tool in tools {
        all.push(candidate(tool, regime));
        if tool.name == "cp" && regime == Regime::ColdDurable {
            // The other way to a durable copy.
            let synced = candidate(tool, Regime::ColdSync);
            all.push(Candidate { label: "cp, then sync".into(), ..synced });
        }
    }
    all
}

fn candidate(tool: &Tool, regime: Regime) -> Candidate {
    let durable = regime == Regime::ColdDurable;
    let mut one = Candidate {
        label: tool.name.clone(),
        tool: tool.name.clone(),
        version: tool.version.clone(),
        script: tool.script.clone(),
        fsync_each: durable && !tool.fsync,
        then_sync: regime == Regime::ColdSync,
        error: None,
    };
    if durable && tool.fsync {
        one.script = one.script.replacen("\"$1\"", "--fsync \"$1\"", 1);
    }
    if durable {
        one.label.push_str(if tool.fsync { " --fsync" } else { " + fsync" });
    }
    one
}

impl Candidate {
    pub(super) fn command(&self, source: &Path, copy: &Path) -> Command {
        // The line break ends a comment of the script.
        let script = match self.fsync_each {
            true => format!("( {}\n) && {FSYNC_EACH}", self.script),
            false => self.script.clone(),
        };
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg("sh").arg(source).arg(copy);
        command
    }

    /// Returns the command as a user would type it.
    pub(super) fn text(&self) -> String {
        let mut text = named(&self.script);
        if self.fsync_each {
            text = format!("{text} && {}", named(FSYNC_EACH));
        }
        if self.then_sync {
            text.push_str(" && sync -f {dst}");
        }
        text
    }
}

fn named(script: &str) -> String {
    script.replace("\"$1\"", "{src}").replace("\"$2\"", "{dst}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, regime: Regime) -> String {
        candidate(&known(name).unwrap(), regime).text()
    }

    #[test]
    fn commands_are_shown_as_typed() {
        assert!(text("cp", Regime::Warm).ends_with("cp -r {src} {dst}"));
        assert!(text("cp", Regime::ColdSync).ends_with("cp -r {src} {dst} && sync -f {dst}"));
        let durable = text("tar", Regime::ColdDurable);
        assert!(durable.starts_with("mkdir {dst} && tar -C {src}"), "{durable}");
        assert!(durable.ends_with("&& find {dst} -exec sync {} +"), "{durable}");
    }

    #[test]
    fn a_custom_tool_gets_both_paths() {
        let shown = |text: &str| candidate(&custom(text).unwrap(), Regime::Warm).text();
        assert_eq!(shown("x=x -r"), "x -r {src} {dst}");
        assert_eq!(shown("x=x {dst} <{src}"), "x {dst} <{src}");
        for nonsense in ["x", "=x", "x=", "x y=z"] {
            assert_eq!(custom(nonsense).unwrap_err().status, cringle_report::failure::USAGE);
        }
    }

    #[test]
    fn cringle_gets_fsync() {
        let script = r#"/bin/cringle cp -r "$1" "$2""#.into();
        let ours = Tool { name: "cringle".into(), version: None, script, fsync: true };
        let texts = |regime| -> Vec<String> {
            let all = candidates(std::slice::from_ref(&ours), regime);
            all.iter().map(Candidate::text).collect()
        };
        assert_eq!(texts(Regime::Warm), ["/bin/cringle cp -r {src} {dst}"]);
        assert_eq!(texts(Regime::ColdDurable), ["/bin/cringle cp -r --fsync {src} {dst}"]);
    }
}
