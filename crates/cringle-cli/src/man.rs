//! `cringle man`: the manual page of a command, or those of all commands.

use crate::cli::{Cli, ManArgs};
use clap_mangen::Man;
use cringle_report as report;
use cringle_report::failure::Failure;
use std::io;
use std::path::Path;

/// A page: the name of its file (`cringle-bench-disk.1`) and its content.
type Page = (String, Vec<u8>);

pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    let mut definition = Cli::definition().disable_help_subcommand(true);
    definition.build();
    let mut pages = Vec::new();
    add_pages(definition, &mut pages)?;
    if let Some(directory) = &args.all {
        return write(&pages, directory);
    }
    let name = args.name.as_deref().unwrap_or("cringle");
    let file = match name.strip_prefix("cringle-").unwrap_or(name) {
        "cringle" => "cringle.1".to_owned(),
        command => format!("cringle-{command}.1"),
    };
    let page = pages.iter().find(|(page, _)| *page == file);
    let (_, text) = page.ok_or_else(|| unknown(&pages, name))?;
    report::print_bytes(text)
}

/// Adds the pages of the command and of its subcommands.
fn add_pages(command: clap::Command, pages: &mut Vec<Page>) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        add_pages(subcommand.clone(), pages)?;
    }
    let (man, mut text) = (Man::new(command), Vec::new());
    man.render(&mut text)?;
    pages.push((man.get_filename(), text));
    Ok(())
}

fn unknown(pages: &[Page], name: &str) -> Failure {
    let command = |(file, _): &Page| {
        file.strip_prefix("cringle-").and_then(|file| file.strip_suffix(".1")).map(str::to_owned)
    };
    let mut commands: Vec<String> = pages.iter().filter_map(command).collect();
    commands.sort();
    Failure::usage(format!(
        "{name}: no command has this name; name one of {}; --all DIRECTORY writes the pages of all",
        commands.join(", ")
    ))
}

/// Writes the pages into the directory, and prints how to read them. A symbolic link with the name
/// of a page is replaced.
fn write(pages: &[Page], directory: &Path) -> Result<(), Failure> {
    let shown = directory.display();
    let written = std::fs::create_dir_all(directory).and_then(|()| {
        pages.iter().try_for_each(|(name, text)| report::file::replace(&directory.join(name), text))
    });
    written.map_err(|error| {
        Failure::failed(format!(
            "cannot write pages into {shown}: {error}; name a directory that can be written"
        ))
    })?;
    report::print(&format!(
        "{} pages are in {shown}, one for each command; read one by `man {}`\n",
        pages.len(),
        directory.join("cringle-cp.1").display()
    ))
}
