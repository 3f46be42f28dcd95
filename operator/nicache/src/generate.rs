//! `nicache generate`: what packages have beside the program, made from the definition of the
//! command line.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write
    #[arg(value_enum)]
    pub what: Generated,
    /// The folder for it; made if it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// What is made from the definition of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// Manual pages: NAME.1, NAME-COMMAND.1, ...
    Man,
    /// Completions for bash, zsh and fish
    Completions,
}

/// Writes manual pages or completions of a program with this command line.
pub fn execute(mut command: clap::Command, arguments: &GenerateArgs) -> Result<ExitCode> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let name = command.get_name().to_owned();
    match arguments.what {
        Generated::Man => {
            command.build();
            write_pages(&command, &name, folder)?;
        }
        Generated::Completions => {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut command, &*name, folder)
                    .with_context(|| format!("cannot write into {}", folder.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, then those of its own commands.
fn write_pages(command: &clap::Command, name: &str, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{name}.1"));
    let mut file = BufWriter::new(
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?,
    );
    // Clap's names are borrowed for as long as the program runs.
    let title: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let page = clap_mangen::Man::new(command.clone().name(title)).title(title).manual("nicache");
    page.render(&mut file)?;
    for child in
        command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help")
    {
        write_pages(child, &format!("{name}-{}", child.get_name()), folder)?;
    }
    Ok(())
}
