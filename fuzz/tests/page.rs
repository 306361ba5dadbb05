//! The table of docs/fuzzing.md: a run of one target keeps the rows of the others, and a finding is on it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use syncguard_fuzz::engine::{Finding, LIMIT, Plan, Report};
use syncguard_fuzz::page::{Row, write};

const BEGIN: &str = "<!-- figures: begin; `make fuzz PAGE=docs/fuzzing.md` writes what follows -->";

#[test]
fn a_run_of_one_target_keeps_the_rows_of_the_others() {
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    let _ = fs::remove_dir_all(&base);
    let (figures, page) = (base.join("figures"), base.join("page.md"));
    fs::create_dir_all(&base).expect("a folder");
    let old = "| `urls` | 7 | of another day |";
    let gone = "| `no-longer-a-target` | 1 |";
    let text = format!(
        "before\n{BEGIN}\n\n{old}\n| `resp` | stale |\n{gone}\n\n<!-- figures: end -->\nafter\n"
    );
    fs::write(&page, text).expect("a page");
    let plan = Plan {
        runs: 1,
        seed: 3,
        corpus: base.join("corpus"),
        findings: base.join("findings"),
        limit: LIMIT,
    };
    let report = Report {
        executions: 1_234_567,
        corpus: 0,
        outcomes: 5,
        took: Duration::from_secs(10),
    };
    let finding = Finding {
        what: "a panic".to_owned(),
        file: base.join("input"),
        took: Duration::from_secs(1),
        executions: 42,
    };
    let keep = |row: Row| row.keep(&figures).expect("kept");
    keep(Row::of("resp", &plan, &report));
    keep(Row::of_finding("names", &plan, &finding));
    write(&figures, &page).expect("written");
    let text = fs::read_to_string(&page).expect("the page");
    let row = |name: &str| {
        let begin = format!("| `{name}` |");
        text.lines().find(|line| line.starts_with(&begin))
    };
    assert_eq!(row("urls"), Some(old));
    assert_eq!(row("no-longer-a-target"), None);
    let resp = row("resp").expect("a row");
    assert!(
        resp.contains("| 1 234 567 | 123 456 |") && resp.ends_with("| 0 |"),
        "{resp}"
    );
    let names = row("names").expect("a row");
    assert!(
        names.contains("| 42 | 42 |") && names.ends_with("| 1 |"),
        "{names}"
    );
    assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"));
}
