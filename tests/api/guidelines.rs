//! Tests that docs/api-guidelines.md has every item of the checklist of the Rust API Guidelines, and says of types what is so.

use std::collections::BTreeSet;
use std::path::Path;

use crate::surface::{self, Surface};

/// The checklist, section by section, as https://rust-lang.github.io/api-guidelines/checklist.html has it.
const CHECKLIST: &str = "
    C-CASE C-CONV C-GETTER C-ITER C-ITER-TY C-FEATURE C-WORD-ORDER
    C-COMMON-TRAITS C-CONV-TRAITS C-COLLECT C-SERDE C-SEND-SYNC C-GOOD-ERR C-NUM-FMT C-RW-VALUE
    C-EVOCATIVE C-MACRO-ATTR C-ANYWHERE C-MACRO-VIS C-MACRO-TY
    C-CRATE-DOC C-EXAMPLE C-QUESTION-MARK C-FAILURE C-LINK C-METADATA C-RELNOTES C-HIDDEN
    C-SMART-PTR C-CONV-SPECIFIC C-METHOD C-NO-OUT C-OVERLOAD C-DEREF C-CTOR
    C-INTERMEDIATE C-CALLER-CONTROL C-GENERIC C-OBJECT
    C-NEWTYPE C-CUSTOM-TYPE C-BITFLAG C-BUILDER
    C-VALIDATE C-DTOR-FAIL C-DTOR-BLOCK
    C-DEBUG C-DEBUG-NONEMPTY
    C-SEALED C-STRUCT-PRIVATE C-NEWTYPE-HIDE C-STRUCT-BOUNDS
    C-STABLE C-PERMISSIVE";

fn page() -> String {
    surface::read(Path::new("docs/api-guidelines.md"))
}

/// The row of an item: what stands in its second cell.
fn row(item: &str) -> String {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| C-"));
    let mut found = rows.filter(|line| {
        let first = line.split('|').nth(1).unwrap_or_default();
        let names = first.split(':').next().unwrap_or_default();
        names.split(',').any(|name| name.trim() == item)
    });
    let row = found.next().unwrap_or_else(|| panic!("{item} is missing"));
    assert!(found.next().is_none(), "{item} stands there twice");
    row.split(" | ").skip(1).collect::<Vec<_>>().join(" | ")
}

#[test]
fn every_item_of_the_checklist_is_answered() {
    let items: BTreeSet<&str> = CHECKLIST.split_whitespace().collect();
    assert_eq!(items.len(), 54);
    for item in &items {
        let answer = row(item);
        assert!(answer.len() > 5, "{item}: {answer}");
    }
    let page = page();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| C-"));
    let cells = cells.filter_map(|line| line.split(" |").next());
    for name in cells.flat_map(|cell| cell.split(':').next().unwrap_or_default().split(',')) {
        let name = name.trim().trim_start_matches("C-");
        assert!(items.contains(&*format!("C-{name}")), "no item C-{name}");
    }
}

/// The lines of the listing that begin with `impl`, of a derive.
fn derived(what: &str) -> BTreeSet<String> {
    let listing = surface::read(Path::new("docs/public-api.txt"));
    let start = format!(": impl {what} for ");
    let names = listing.lines().filter_map(|line| line.split_once(&*start));
    names.map(|(_, name)| name.to_owned()).collect()
}

/// The rows name what a reader would miss, and the listing shows that it is so.
#[test]
fn the_exceptions_are_those_of_the_types() {
    let types = Surface::read().types();
    let serialized: BTreeSet<_> = derived("Serialize")
        .union(&derived("serde::Serialize"))
        .cloned()
        .collect();
    let row_of_serde = row("C-SERDE");
    for name in ["Key", "LockId", "Fence", "Ttl", "HolderText"] {
        assert!(row_of_serde.contains(&format!("`{name}`")), "{name}");
    }
    for name in &serialized {
        let named = row_of_serde.contains(&format!("`{name}`"));
        assert!(named, "{name} can be written, and the page does not say so");
    }
    for without in ["LockInfoDebug", "StoredLock", "Acquired", "FailedRelease"] {
        assert!(types.contains(without) && !serialized.contains(without));
        assert!(row_of_serde.contains(&format!("`{without}`")), "{without}");
    }
    // All that is compared is hashed, but for what this row names.
    let (equal, hashed) = (derived("Eq"), derived("Hash"));
    let row_of_traits = row("C-COMMON-TRAITS");
    for name in equal.difference(&hashed) {
        assert!(row_of_traits.contains(&format!("`{name}`")), "{name}");
    }
}
