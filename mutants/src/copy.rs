//! The copy of the work tree that bugs are planted in: `target/mutants/tree`, with a target directory of its own beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::list::Mutant;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package lies in the repository")
}

pub fn tree() -> PathBuf {
    repository().join("target/mutants/tree")
}

pub fn target() -> PathBuf {
    repository().join("target/mutants/target")
}

/// Makes the copy equal to the work tree. Files that are equal are not written: cargo would compile them again.
pub fn refresh() {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others"])
        .arg("--exclude-standard")
        .current_dir(repository())
        .output()
        .expect("git");
    assert!(listed.status.success(), "git ls-files failed");
    let names: BTreeSet<PathBuf> = String::from_utf8(listed.stdout)
        .expect("names of files are UTF-8")
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|name| repository().join(name).is_file())
        .collect();
    for name in &names {
        let (from, to) = (repository().join(name), tree().join(name));
        let wanted = fs::read(&from).expect("a file of the work tree");
        if fs::read(&to).ok().as_ref() != Some(&wanted) {
            fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            fs::copy(&from, &to).expect("a copy");
        }
    }
    remove_others(&tree(), &names);
}

fn remove_others(folder: &Path, names: &BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the copy") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(tree()).expect("a file of the copy");
        if path.is_dir() {
            remove_others(&path, names);
        } else if !names.contains(name) {
            fs::remove_file(&path).expect("a file that may be removed");
        }
    }
}

/// A bug in the copy, until it is dropped.
pub struct Planted {
    path: PathBuf,
    before: String,
}

impl Planted {
    pub fn new(mutant: &Mutant) -> Result<Self, String> {
        let path = tree().join(mutant.file);
        let before = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", mutant.file))?;
        match before.matches(mutant.old).count() {
            1 => {}
            n => return Err(format!("{} has the old text {n} times", mutant.file)),
        }
        fs::write(&path, before.replace(mutant.old, mutant.new))
            .map_err(|e| format!("{}: {e}", mutant.file))?;
        Ok(Self { path, before })
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        fs::write(&self.path, &self.before).expect("the file as it was");
    }
}
