//! Searches what the workers wrote to stdout and stderr for what no output may have: the password, keys, and the lock ids that they
//! wrote to a file of their own.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::store::SECRET;
use crate::worker::KEY_CANARY;

/// How many letters a lock id has.
const LOCK_ID: usize = 22;

/// What was found.
pub struct Searched {
    /// The lines that have a secret.
    pub lines: Vec<String>,
    /// How many lock ids were looked for in each output.
    pub lock_ids: u64,
}

pub fn output_of(dir: &Path, incarnation: i64) -> PathBuf {
    dir.join(format!("output-{incarnation}"))
}

/// Where a worker writes the ids of its locks, a line each.
pub fn ids_of(dir: &Path, incarnation: i64) -> PathBuf {
    dir.join(format!("ids-{incarnation}"))
}

/// Searches the output of each of these workers for the ids of all of them.
pub fn search(dir: &Path, workers: impl Iterator<Item = i64> + Clone) -> Searched {
    let files: Vec<String> = workers
        .clone()
        .map(|worker| std::fs::read_to_string(ids_of(dir, worker)).unwrap_or_default())
        .collect();
    // The last line of a worker that was killed may be torn.
    let ids: HashSet<&[u8]> = files
        .iter()
        .flat_map(|file| file.lines())
        .map(str::as_bytes)
        .filter(|id| id.len() == LOCK_ID)
        .collect();
    let mut lines = Vec::new();
    for worker in workers {
        let output = std::fs::read(output_of(dir, worker)).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let told = output.lines().filter(|line| tells(line, &ids));
        lines.extend(told.map(str::to_owned));
    }
    Searched {
        lines,
        lock_ids: ids.len() as u64,
    }
}

fn tells(line: &str, ids: &HashSet<&[u8]>) -> bool {
    let has_id = || line.as_bytes().windows(LOCK_ID).any(|w| ids.contains(w));
    line.contains(SECRET) || line.contains(KEY_CANARY) || has_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_a_key_and_a_lock_id_are_found_in_any_output() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).expect("written");
        write(ids_of(dir.path(), 1), "0123456789abcdefghij-_\ntorn");
        write(ids_of(dir.path(), 2), "ABCDEFGHIJ0123456789-_\n");
        write(output_of(dir.path(), 1), "all is well\ntorn\n");
        assert!(search(dir.path(), [1, 2].into_iter()).lines.is_empty());
        for told in [
            "no answer from redis://app:canary-secret@127.0.0.1".to_owned(),
            format!("{KEY_CANARY}7 is held"),
            "the lock (0123456789abcdefghij-_) is gone".to_owned(),
        ] {
            write(output_of(dir.path(), 2), &format!("well\n{told}\nwell\n"));
            let searched = search(dir.path(), [1, 2].into_iter());
            assert_eq!(searched.lines, [told]);
            assert_eq!(searched.lock_ids, 2);
        }
    }
}
