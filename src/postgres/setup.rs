//! Creating what the verbs need, and telling what is wrong with what is there.

use super::calls::millis_left;
use super::connection::{Connection, Mode};
use super::sql::{Sql, quote};
use super::wire::{Param, Row};
use crate::error::{ErrorCode, LockError};
use crate::keyspace::TableNames;
use crate::limits::Limits;

/// Held by whoever sets up, in the key space of two numbers, which no lock uses: creating one thing twice at the same time
/// fails on the catalog's own indexes, `IF NOT EXISTS` or not.
const SETUP_LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(1937337955, 1)";
const PLAIN_PATH: &str = "SET LOCAL search_path = pg_catalog";

/// What `inspect.sql` found.
struct Findings(Vec<(String, String)>);

impl Findings {
    fn read(rows: &[Row]) -> Result<Self, LockError> {
        rows.iter()
            .map(|row| {
                let text = |i| Ok::<_, LockError>(row.text(i)?.unwrap_or_default().to_owned());
                Ok((text(0)?, text(1)?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn of<'a>(&'a self, kinds: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(kind, _)| kinds.contains(&kind.as_str()))
            .map(|(_, text)| text.as_str())
    }

    fn has(&self, kind: &str) -> bool {
        self.of(&[kind]).next().is_some()
    }

    /// What neither set-up nor the verbs can live with.
    fn refuse(&self, sql: &Sql) -> Result<(), LockError> {
        let join = |kinds: &[&str]| self.of(kinds).collect::<Vec<_>>().join("; ");
        if self.has("standby") {
            return Err(
                LockError::unavailable("the server is a standby: locks need the primary")
                    .nothing_applied(),
            );
        }
        if self.has("old") {
            return Err(LockError::invalid(join(&["old"])));
        }
        if self.has("wrong") {
            return Err(LockError::invalid(format!(
                "the tables in schema {} cannot hold locks: {}. Name other tables, or repair these",
                quote(&sql.schema),
                join(&["wrong"])
            )));
        }
        if self.has("denied") {
            return Err(LockError::new(
                ErrorCode::AuthFailed,
                format!(
                    "the role lacks {} in schema {}",
                    join(&["denied"]),
                    quote(&sql.schema)
                ),
            ));
        }
        Ok(())
    }
}

fn inspect_params<'a>(sql: &'a Sql, names: &'a TableNames) -> [Param<'a>; 9] {
    let [a, b, c] = &sql.functions;
    [
        &sql.schema,
        &names.lock,
        &names.fence,
        &a.name,
        &b.name,
        &c.name,
        &a.body,
        &b.body,
        &c.body,
    ]
    .map(|text| Param::Text(text))
}

/// Looks at everything in one trip and writes nothing. Answers what is not safe but works.
pub(crate) fn check(
    connection: &mut Connection,
    sql: &Sql,
    names: &TableNames,
    limits: &Limits<'_>,
) -> Result<Vec<String>, LockError> {
    let rows = connection.transact_with(
        Mode::Read,
        Some(PLAIN_PATH),
        sql.inspect(),
        &inspect_params(sql, names),
        limits,
    )?;
    let findings = Findings::read(&rows)?;
    let missing: Vec<_> = findings
        .of(&[
            "no-schema",
            "no-locks",
            "no-fences",
            "no-function",
            "changed-function",
        ])
        .collect();
    findings.refuse(sql)?;
    if !missing.is_empty() {
        return Err(LockError::invalid(format!(
            "{} in schema {}; call setup_schema() once, with a role that may create tables and functions",
            missing.join(", "),
            quote(&sql.schema)
        )));
    }
    Ok(findings
        .of(&["unsafe", "no-expiry-index"])
        .map(str::to_owned)
        .collect())
}

/// Creates what is missing, in one transaction; what is there and right is left alone, so that a role without the right to
/// create may call this too.
pub(crate) fn create(
    connection: &mut Connection,
    sql: &Sql,
    names: &TableNames,
    limits: &Limits<'_>,
) -> Result<(), LockError> {
    let ms = millis_left(limits)?;
    connection.script(
        &format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {ms}; SET LOCAL lock_timeout = {ms}; \
             {PLAIN_PATH}; SET LOCAL default_tablespace = ''; \
             SET LOCAL default_table_access_method = heap; {SETUP_LOCK}"
        ),
        limits,
    )?;
    let rows = connection.query(sql.inspect(), &inspect_params(sql, names), limits)?;
    let findings = Findings::read(&rows)?;
    findings.refuse(sql)?;
    let mut script = Vec::new();
    if findings.has("no-schema") {
        script.push(format!("CREATE SCHEMA {}", quote(&sql.schema)));
    }
    if findings.has("no-locks") {
        script.push(sql.create_locks.clone());
    }
    if findings.has("no-locks") || findings.has("no-expiry-index") {
        script.push(sql.create_expiry_index.clone());
    }
    if findings.has("no-fences") {
        script.push(sql.create_fences.clone());
    }
    if findings.has("no-function") || findings.has("changed-function") {
        script.extend(sql.functions.iter().map(|f| f.create.clone()));
    }
    script.push("COMMIT".to_owned());
    connection.script(&script.join(";\n"), limits)
}

/// All of it for an empty database, to be read and run by people.
pub(crate) fn script(sql: &Sql, create_schema: bool) -> String {
    let mut script = vec!["BEGIN".to_owned(), PLAIN_PATH.to_owned()];
    if create_schema {
        script.push(format!(
            "CREATE SCHEMA IF NOT EXISTS {}",
            quote(&sql.schema)
        ));
    }
    script.extend([
        sql.create_locks.clone(),
        sql.create_expiry_index.clone(),
        sql.create_fences.clone(),
    ]);
    script.extend(sql.functions.iter().map(|f| f.create.clone()));
    script.push("COMMIT".to_owned());
    let mut text = String::new();
    for statement in script {
        text.push_str(statement.trim());
        text.push_str(";\n");
    }
    text
}
