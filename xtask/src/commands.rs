//! Commands: their output, and what cargo says of a build.

use crate::Result;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Finds a program, also in the directories that only root has in its path.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(system);
    places.map(|place| place.join(tool)).find(|file| file.is_file())
}

/// Runs a command and returns its standard output.
///
/// # Errors
///
/// The command's standard error, if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{errors}", output.status).into())
}

/// Builds by a command of cargo, whose messages appear, and returns what it says of each artifact.
pub(crate) fn artifacts(cargo: &mut Command) -> Result<Vec<Value>> {
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let built = cargo.output()?;
    if !built.status.success() {
        return Err(format!("{cargo:?} failed").into());
    }
    let lines = String::from_utf8(built.stdout)?;
    let messages = lines.lines().map(serde_json::from_str);
    let messages = messages.collect::<serde_json::Result<Vec<Value>>>()?;
    Ok(messages.into_iter().filter(|message| message["reason"] == "compiler-artifact").collect())
}
