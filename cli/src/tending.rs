//! `check` and `setup`: whether a store can be used, and making it ready.

use std::io::Write;

use serde_json::json;
use syncguard::{CheckLevel, CheckSubject, PostgresBackend};

use crate::args::{CheckArgs, SetupArgs, StoreArgs};
use crate::exit::{self, Failure};
use crate::store;

pub fn check(store: &StoreArgs, args: &CheckArgs) -> Result<u8, Failure> {
    // The report has the warnings: they are not told a second time.
    let client = store::open_with(store, &store::options(store).on_warning(|_| {}))?;
    let report = client.check_report();
    let mut out = std::io::stdout().lock();
    for finding in &report.findings {
        let (subject, level) = (finding.subject.as_str(), finding.level.as_str());
        if store.json {
            let line = json!({
                "subject": subject,
                "level": level,
                "text": finding.text,
                "advice": finding.advice,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{level:8} {subject:10} {}", finding.text)?;
            if let Some(advice) = &finding.advice {
                writeln!(out, "{:19} {advice}", "")?;
            }
        }
    }
    out.flush()?;
    let is_not_set_up = report
        .findings
        .iter()
        .any(|f| f.subject == CheckSubject::SetUp && f.level == CheckLevel::Error);
    Ok(match report.level() {
        CheckLevel::Error if is_not_set_up => exit::CONFIG,
        CheckLevel::Error => report.code().map_or(exit::SOFTWARE, exit::code_of),
        CheckLevel::Warning if args.strict => 1,
        _ => 0,
    })
}

pub fn setup(store: &StoreArgs, args: &SetupArgs) -> Result<u8, Failure> {
    if args.print_sql {
        let sql = PostgresBackend::schema_sql(&store::options(store))?;
        std::io::stdout().write_all(sql.as_bytes())?;
        return Ok(0);
    }
    let client = store::open(store)?;
    client.setup_schema()?;
    // What could not be done, and what is not safe, is a warning.
    client.check()?;
    Ok(0)
}
