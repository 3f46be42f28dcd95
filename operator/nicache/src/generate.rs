//! `nicache generate`: what packages have beside the program, made from the definition of the command line.

use std::fs::File;
use std::io::BufWriter;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::Shell;

use crate::cli::{GenerateArgs, Generated};

/// Writes manual pages or completions.
pub fn execute(arguments: &GenerateArgs) -> Result<ExitCode> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut command = crate::cli::command();
    match arguments.what {
        Generated::Man => {
            command.build();
            write_pages(&command, "nicache", folder)?;
        }
        Generated::Completions => {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut command, "nicache", folder)
                    .with_context(|| format!("cannot write into {}", folder.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, then those of its own commands.
fn write_pages(command: &clap::Command, name: &str, folder: &std::path::Path) -> Result<()> {
    let path = folder.join(format!("{name}.1"));
    let mut file = BufWriter::new(File::create(&path).with_context(|| format!("cannot write {}", path.display()))?);
    // Clap's names are borrowed for as long as the program runs.
    let title: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let page = clap_mangen::Man::new(command.clone().name(title)).title(title).manual("nicache");
    page.render(&mut file)?;
    for child in command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help") {
        write_pages(child, &format!("{name}-{}", child.get_name()), folder)?;
    }
    Ok(())
}
