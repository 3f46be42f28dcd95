//! The scripts of this crate.

use std::path::{Path, PathBuf};

use nicache_packetscript::{Script, Side, parse};

/// A script.
pub(crate) struct Named {
    /// Its path below `scripts/` without the ending.
    pub name: String,
    /// What it says.
    pub script: Script,
}

/// All scripts that are for `side`, in the order of their names.
pub(crate) fn scripts(side: Side) -> Vec<Named> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut scripts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name =
            file.strip_prefix(&root).unwrap().with_extension("").to_str().unwrap().to_owned();
        let script = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if script.setup.only.as_ref().is_none_or(|(only, _)| side.reads(*only)) {
            scripts.push(Named { name, script });
        }
    }
    assert!(!scripts.is_empty(), "there are scripts");
    scripts
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "pkt") {
            files.push(path);
        }
    }
}
