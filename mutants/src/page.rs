//! The table of docs/mutants.md: a row for each bug, with what became of it and when. A run of some bugs changes their rows alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Fate;
use crate::list::{self, Mutant, PLACES};

const BEGIN: &str =
    "<!-- result: begin; `make mutants PAGE=docs/mutants.md` writes what follows -->";
const END: &str = "<!-- result: end -->";

fn today() -> String {
    let out = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    out.map_or(String::new(), |out| {
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    })
}

/// What the page says of each bug that is still in the list: its fate and the date.
fn read(table: &str) -> BTreeMap<(String, String), (String, String)> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.map(|row| row.trim_end_matches(" |").split(" | ").collect::<Vec<_>>());
    cells
        .filter_map(|cells| match cells[..] {
            [place, bug, fate, date] if PLACES.contains(&place) => Some((
                (place.to_owned(), bug.to_owned()),
                (fate.to_owned(), date.to_owned()),
            )),
            _ => None,
        })
        .collect()
}

/// Writes what became of these bugs. The others keep their rows; one that was never planted says so.
pub fn write(page: &Path, fates: &[(&Mutant, Fate)]) -> Result<(), String> {
    let name = page.display();
    let old = fs::read_to_string(page).map_err(|e| format!("{name}: {e}"))?;
    let parts = old
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (table, after)) =
        parts.ok_or(format!("{name} lacks the lines {BEGIN} and {END}"))?;
    let mut rows = read(table);
    for (mutant, fate) in fates {
        let row = (fate.name().to_owned(), today());
        rows.insert((mutant.place.to_owned(), mutant.bug.to_owned()), row);
    }
    let text = tables(&rows);
    fs::write(page, format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
        .map_err(|e| format!("{name}: {e}"))
}

fn tables(rows: &BTreeMap<(String, String), (String, String)>) -> String {
    let never = ("not planted yet".to_owned(), "–".to_owned());
    let of = |mutant: &Mutant| {
        let key = (mutant.place.to_owned(), mutant.bug.to_owned());
        rows.get(&key).unwrap_or(&never)
    };
    let mut text = String::from("| place | bugs | caught | others |\n|---|---:|---:|---|\n");
    let mut sums = |name: &str, chosen: &dyn Fn(&Mutant) -> bool| {
        let mut others: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut all, mut caught) = (0, 0);
        for mutant in list::all().filter(|m| chosen(m)) {
            all += 1;
            match of(mutant).0.as_str() {
                "caught" => caught += 1,
                other => *others.entry(other).or_default() += 1,
            }
        }
        let others: Vec<String> = others
            .iter()
            .map(|(what, n)| format!("{what} {n}"))
            .collect();
        let others = if others.is_empty() {
            "–".to_owned()
        } else {
            others.join(", ")
        };
        text.push_str(&format!("| {name} | {all} | {caught} | {others} |\n"));
    };
    for place in PLACES {
        sums(place, &|mutant| mutant.place == place);
    }
    sums("all", &|_| true);
    text.push_str("\n| place | bug | became | on |\n|---|---|---|---|\n");
    for mutant in list::all() {
        let (fate, date) = of(mutant);
        let (place, bug) = (mutant.place, mutant.bug);
        text.push_str(&format!("| {place} | {bug} | {fate} | {date} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_some_bugs_keeps_the_rows_of_the_others() {
        let page = std::env::temp_dir().join(format!("mutants-page-{}", std::process::id()));
        let mut all = list::all();
        let (first, second) = (all.next().expect("a bug"), all.next().expect("a bug"));
        let before = format!(
            "before\n{BEGIN}\n| {} | {} | caught | 2020-01-02 |\n| {} | a bug that is gone | caught | 2020-01-02 |\n{END}\nafter\n",
            first.place, first.bug, first.place
        );
        fs::write(&page, before).expect("a page");
        write(&page, &[(second, Fate::Missed)]).expect("written");
        write(&page, &[]).expect("written once more");
        let text = fs::read_to_string(&page).expect("the page");
        fs::remove_file(&page).expect("removed");
        let row = |m: &Mutant| {
            let begin = format!("| {} | {} | ", m.place, m.bug);
            let row = text.lines().find_map(|line| line.strip_prefix(&begin));
            row.unwrap_or_default().to_owned()
        };
        assert_eq!(row(first), "caught | 2020-01-02 |");
        assert_eq!(row(second), format!("missed | {} |", today()));
        assert_eq!(row(all.next().expect("a bug")), "not planted yet | – |");
        assert!(!text.contains("a bug that is gone"));
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"));
    }
}
