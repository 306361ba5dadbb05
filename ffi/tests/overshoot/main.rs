//! Tests that no call outlasts its bound by more than 100 ms: every call of Rust, C, the C waiter and Go, on servers that are stopped,
//! silent, slow, cut off or gone. `make overshoot` measures all of them and prints the table of docs/bounds.md; the test measures
//! those that wait in a line, and each of the others once.

// The servers' files know the crate by its own name.
extern crate rust_syncguard as syncguard;

mod callers;
mod connections;
mod faults;
mod rust;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use callers::{Row, rows};
use connections::{Own, OwnFiles};
use faults::{Fault, Store};

/// What a call may take over its bound.
const ALLOWED_MS: i64 = 100;
/// What a call of Go may take beside other tests: the waits of its own scheduler cannot be told from the library's. An operation
/// timeout too many is more.
const ALLOWED_IN_GO_MS: i64 = 250;
/// How many rows are measured at once: more would wait for a processor, not for the store.
const AT_ONCE: usize = 4;

/// The acquire and the operation timeout: the larger one bounds a wait, and either may be the larger. The last pair is that of calls that do not wait.
const TIMES: [(u32, u32); 3] = [(300, 600), (400, 400), (600, 300)];

/// What became of the calls of one row under one fault.
#[derive(Clone, Copy, Default)]
struct Measured {
    calls: usize,
    best_ms: i64,
    worst_ms: i64,
}

impl Measured {
    /// Adds a call that took so long, without the time in which it could not run.
    fn add(&mut self, took: Duration, lost: Duration, bound_ms: u32) {
        let bound = Duration::from_millis(bound_ms.into());
        let ms = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        // Time in which nothing ran excuses what came too late, and no more.
        let over_ms = if took > bound {
            ms((took - bound).saturating_sub(lost))
        } else {
            -ms(bound - took)
        };
        self.best_ms = if self.calls == 0 {
            over_ms
        } else {
            self.best_ms.min(over_ms)
        };
        self.worst_ms = if self.calls == 0 {
            over_ms
        } else {
            self.worst_ms.max(over_ms)
        };
        self.calls += 1;
    }

    fn join(&mut self, other: Self) {
        if self.calls == 0 {
            *self = other;
        } else if other.calls > 0 {
            self.best_ms = self.best_ms.min(other.best_ms);
            self.worst_ms = self.worst_ms.max(other.worst_ms);
            self.calls += other.calls;
        }
    }
}

/// Measures `rows` under `faults`, and gives the cells by row and fault.
fn measure(
    store: &Store,
    rows: &[Row],
    faults: &[Fault],
    times: &[(u32, u32)],
) -> BTreeMap<(usize, usize), Measured> {
    let mut cells: BTreeMap<(usize, usize), Measured> = BTreeMap::new();
    for (column, fault) in faults.iter().enumerate() {
        for (at, &(acquire, operation)) in times.iter().enumerate() {
            let last = at + 1 == times.len();
            let some: Vec<usize> = (0..rows.len())
                .filter(|n| last || rows[*n].waits())
                .collect();
            for batch in some.chunks(AT_ONCE) {
                let trouble = store.ready(*fault);
                let url = trouble.url();
                let started: Vec<_> = batch
                    .iter()
                    .map(|row| rows[*row].prepare(&url, acquire, operation))
                    .collect();
                let begun = trouble.begin();
                let running: Vec<_> = started.into_iter().map(callers::Prepared::go).collect();
                for (row, running) in batch.iter().zip(running) {
                    cells.entry((*row, column)).or_default().join(running.end());
                }
                drop(begun);
            }
        }
    }
    cells
}

/// The table of one store, in Markdown: how late the worst call came, and beside it how early the best.
fn table(
    name: &str,
    rows: &[Row],
    faults: &[Fault],
    cells: &BTreeMap<(usize, usize), Measured>,
) -> String {
    let mut text = format!("### {name}\n\n| call | callers |");
    for fault in faults {
        let _ = write!(text, " {} |", fault.name());
    }
    let _ = write!(text, "\n|---|---:|{}\n", "---:|".repeat(faults.len()));
    for (at, row) in rows.iter().enumerate() {
        let _ = write!(text, "| {} | {} |", row.name(), row.callers);
        for column in 0..faults.len() {
            let cell = cells[&(at, column)];
            let _ = write!(text, " {:+} ({:+}) |", cell.worst_ms, cell.best_ms);
        }
        text.push('\n');
    }
    let calls: usize = cells.values().map(|cell| cell.calls).sum();
    let worst = cells.values().map(|cell| cell.worst_ms).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{calls} calls; the worst came {worst:+} ms after its bound.\n"
    );
    text
}

fn bounded(name: &str, store: &Store) {
    let full = std::env::var_os("SYNCGUARD_OVERSHOOT").is_some();
    let all = rows();
    let (rows, faults, times): (Vec<Row>, Vec<Fault>, &[(u32, u32)]) = if full {
        (all, Fault::ALL.to_vec(), &TIMES)
    } else {
        (all, vec![Fault::Stopped], &TIMES[2..])
    };
    let cells = measure(store, &rows, &faults, times);
    let mut text = table(name, &rows, &faults, &cells);
    let mut late = too_late(&rows, &cells);
    if !full {
        // The line once more, where its callers wait for the rest of their time, and for other reasons.
        let lines: Vec<Row> = rows
            .into_iter()
            .filter(|row| row.callers == 3 && row.waits())
            .collect();
        let faults = [Fault::Silent, Fault::Trickling];
        let more = measure(store, &lines, &faults, &TIMES[..1]);
        text.push_str(&table(name, &lines, &faults, &more));
        late += too_late(&lines, &more);
    }
    println!("{text}");
    assert_eq!(
        late, 0,
        "calls that outlast their bound by more than {ALLOWED_MS} ms, in Go {ALLOWED_IN_GO_MS}:\n{text}"
    );
}

/// How many cells hold a call that came too late.
fn too_late(rows: &[Row], cells: &BTreeMap<(usize, usize), Measured>) -> usize {
    let allowed = |row: usize| match rows[row].is_go() {
        true => ALLOWED_IN_GO_MS,
        false => ALLOWED_MS,
    };
    let late = |((row, _), cell): &(&(usize, usize), &Measured)| cell.worst_ms > allowed(*row);
    cells.iter().filter(late).count()
}

#[test]
fn no_call_outlasts_its_bound_on_redis() {
    bounded("Redis", &Store::redis());
}

#[test]
fn no_call_outlasts_its_bound_on_postgres() {
    bounded("Postgres", &Store::postgres());
}

/// Every call needs a connection, and there is a fault on the way to it, or what makes it hangs.
fn own_connections(name: &str, store: &Store) {
    let (files, faults) = (
        OwnFiles::make(),
        [Fault::Stopped, Fault::Silent, Fault::Trickling],
    );
    let mut text = format!("### {name}, connections of your own\n\n| every connection has |");
    for fault in faults {
        let _ = write!(text, " {} |", fault.name());
    }
    text.push_str("\n|---|---:|---:|---:|\n");
    let mut worst = i64::MIN;
    for own in Own::ALL {
        if !own.is_for(&store.ready(Fault::Silent).url()) {
            continue;
        }
        let _ = write!(text, "| {} |", own.name());
        for fault in faults {
            let trouble = store.ready(fault);
            let begun = trouble.begin();
            let cell = own.measure(&trouble.url(), &files);
            drop(begun);
            worst = worst.max(cell.worst_ms);
            let _ = write!(text, " {:+} ({:+}) |", cell.worst_ms, cell.best_ms);
        }
        text.push('\n');
    }
    println!("{text}");
    assert!(worst <= ALLOWED_MS, "a call outlasts its bound:\n{text}");
}

#[test]
fn no_connection_of_the_users_own_outlasts_its_bound() {
    own_connections("Redis", &Store::redis());
    own_connections("Postgres", &Store::postgres());
}
