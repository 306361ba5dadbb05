//! Creates what the verbs need, and says what is wrong with what is there. It uses `connection`, `message`, `sql`, `transaction`,
//! `backend` and `types`.

use super::connection::{Mode, PostgresConnection};
use super::message::{Param, Row};
use super::sql::{Sql, quote};
use super::transaction::millis_left;
use crate::backend::keyspace::TableNames;
use crate::backend::limits::Limits;
use crate::types::error::{ErrorCode, LockError};

/// Held during set-up, in the key space of two numbers, which no lock uses: creating one thing twice at the same time fails on
/// the catalog's own indexes, `IF NOT EXISTS` or not.
const SETUP_LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(1937337955, 1)";
/// Temporary tables come last. Not named they would come first, and an earlier user of a pooled session may have left some.
const PLAIN_PATH: &str = "SET LOCAL search_path = pg_catalog, pg_temp";
/// Where scans are turned off, the estimated cost of any plan is so large that it would be compiled, for seconds.
const NO_JIT: &str = "SET LOCAL jit = off";

/// The kinds of findings that `setup_schema` mends.
const MISSING: [&str; 5] = [
    "no-schema",
    "no-locks",
    "no-fences",
    "no-function",
    "changed-function",
];

/// The kinds that only keep the texts of holders from being stored.
const NO_HOLDERS: [&str; 3] = ["no-holder", "no-holder-function", "no-holder-right"];
/// How long adding a column may wait for the callers that use the table: all later callers wait behind it.
const ALTER_WITHIN_MS: i32 = 1000;

/// What `inspect.sql` found.
pub(super) struct Findings {
    list: Vec<Finding>,
}

struct Finding {
    kind: String,
    text: String,
}

impl Findings {
    pub(super) fn read(rows: &[Row]) -> Result<Self, LockError> {
        let finding = |row: &Row| {
            let text = |i| Ok::<_, LockError>(row.text(i)?.unwrap_or_default().to_owned());
            Ok::<_, LockError>(Finding {
                kind: text(0)?,
                text: text(1)?,
            })
        };
        Ok(Self {
            list: rows.iter().map(finding).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn of<'a>(&'a self, kinds: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.list
            .iter()
            .filter(move |finding| kinds.contains(&finding.kind.as_str()))
            .map(|finding| finding.text.as_str())
    }

    pub(super) fn has(&self, kind: &str) -> bool {
        self.of(&[kind]).next().is_some()
    }

    /// The first of what neither set-up nor the verbs can work with.
    fn refuse(&self, sql: &Sql) -> Result<(), LockError> {
        let join = |kinds: &[&str]| self.of(kinds).collect::<Vec<_>>().join("; ");
        if self.has("standby") {
            return Err(is_a_standby());
        }
        if self.has("old") {
            return Err(LockError::invalid(join(&["old"])));
        }
        if self.has("foreign-function") {
            return Err(LockError::invalid(format!(
                "{} in schema {}: drop it, then call setup_schema()",
                join(&["foreign-function"]),
                quote(&sql.schema)
            )));
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

pub(super) fn is_a_standby() -> LockError {
    LockError::unavailable("the server is a standby: locks need the primary").nothing_applied()
}

/// A session in which a schema is created or looked at.
pub trait SchemaSession {
    /// Runs statements without parameters as one text.
    ///
    /// # Errors
    /// Those of the driver and of the server, with the code that fits: [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if it took too
    /// long, a lock of the server included.
    fn script(&mut self, sql: &str) -> Result<(), LockError>;

    /// Runs one statement with parameters, and answers its rows.
    ///
    /// # Errors
    /// Those of the driver and of the server, with the code that fits: [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if it took too
    /// long, a lock of the server included.
    fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, LockError>;
}

/// A connection of our own, which ends everything by the limits of the call.
struct LimitedSession<'a> {
    connection: &'a mut PostgresConnection,
    limits: &'a Limits<'a>,
}

impl SchemaSession for LimitedSession<'_> {
    fn script(&mut self, sql: &str) -> Result<(), LockError> {
        self.connection.script(sql, self.limits)
    }

    fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, LockError> {
        self.connection.query(sql, params, self.limits)
    }
}

/// Begins the one transaction of a set-up. It waits for others that set up, and ends by the limits.
pub(super) fn begin(
    connection: &mut PostgresConnection,
    limits: &Limits<'_>,
) -> Result<(), LockError> {
    let ms = millis_left(limits)?;
    connection.script(&begin_text(ms), limits)
}

fn begin_text(ms: i32) -> String {
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {ms}; SET LOCAL lock_timeout = {ms}; \
         {PLAIN_PATH}; {NO_JIT}; SET LOCAL default_tablespace = ''; \
         SET LOCAL default_table_access_method = heap; {SETUP_LOCK}"
    )
}

/// Runs `inspect.sql` in a transaction that is open.
fn inspect(
    session: &mut dyn SchemaSession,
    sql: &Sql,
    names: &TableNames,
) -> Result<Findings, LockError> {
    let functions = sql.expected_functions();
    let params = inspect_params(sql, names, &functions);
    Findings::read(&session.query(sql.inspect(), &params)?)
}

fn inspect_params<'a>(sql: &'a Sql, names: &'a TableNames, functions: &'a str) -> [Param<'a>; 4] {
    [&sql.schema, &names.lock, &names.fence, functions].map(Param::Text)
}

/// Looks at everything in one trip and writes nothing. Answers what is not safe but works.
pub(crate) fn check(
    connection: &mut PostgresConnection,
    sql: &Sql,
    names: &TableNames,
    limits: &Limits<'_>,
) -> Result<Vec<String>, LockError> {
    let functions = sql.expected_functions();
    let rows = connection.transact_with(
        Mode::Read,
        &[PLAIN_PATH, NO_JIT],
        sql.inspect(),
        &inspect_params(sql, names, &functions),
        limits,
    )?;
    judge(&Findings::read(&rows)?, sql)
}

/// The same in a transaction of the session's, which is left open.
pub(super) fn check_in(
    session: &mut dyn SchemaSession,
    sql: &Sql,
    names: &TableNames,
    ms: i32,
) -> Result<Vec<String>, LockError> {
    session.script(&format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = {ms}; {PLAIN_PATH}; {NO_JIT}"
    ))?;
    judge(&inspect(session, sql, names)?, sql)
}

fn judge(findings: &Findings, sql: &Sql) -> Result<Vec<String>, LockError> {
    let missing: Vec<_> = findings.of(&MISSING).collect();
    findings.refuse(sql)?;
    if !missing.is_empty() {
        return Err(LockError::invalid(format!(
            "{} in schema {}; call setup_schema() once, with a role that may create tables and functions",
            missing.join(", "),
            quote(&sql.schema)
        )));
    }
    Ok(findings
        .of(&[&["unsafe", "no-expiry-index"], &NO_HOLDERS[..]].concat())
        .map(str::to_owned)
        .collect())
}

/// Creates what is missing, what locks need in one transaction; what is there and right is left alone, so that a role without the right to
/// create may call this too. Answers whether the texts of holders can be stored now.
pub(crate) fn create(
    connection: &mut PostgresConnection,
    sql: &Sql,
    names: &TableNames,
    limits: &Limits<'_>,
) -> Result<bool, LockError> {
    let ms = millis_left(limits)?;
    create_in(&mut LimitedSession { connection, limits }, sql, names, ms)
}

/// The same in transactions of the session's; one that fails is left open.
pub(super) fn create_in(
    session: &mut dyn SchemaSession,
    sql: &Sql,
    names: &TableNames,
    ms: i32,
) -> Result<bool, LockError> {
    session.script(&begin_text(ms))?;
    let findings = inspect(session, sql, names)?;
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
    if findings.has("no-locks") || findings.has("no-holder-function") {
        script.push(sql.held_function.create.clone());
    }
    if !script.is_empty() {
        run(session, sql, names, &script)?;
    }
    session.script("COMMIT")?;
    if !findings.has("no-holder") {
        return Ok(!findings.has("no-holder-right"));
    }
    match add_holder(session, sql, names, ms) {
        Ok(()) => Ok(true),
        // The table is in use, by a dump for one. Locks work without the column, and a check warns that it is missing.
        Err(e) if e.code() == ErrorCode::NetworkTimeout => {
            session.script("ROLLBACK")?;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Adds the place for the texts of holders to a table that has none, in a transaction of its own: it must not be in the way of what
/// locks need.
fn add_holder(
    session: &mut dyn SchemaSession,
    sql: &Sql,
    names: &TableNames,
    ms: i32,
) -> Result<(), LockError> {
    session.script(&begin_text(ms))?;
    // Another set-up may have been faster.
    if inspect(session, sql, names)?.has("no-holder") {
        let script = [
            format!("SET LOCAL lock_timeout = {}", ms.min(ALTER_WITHIN_MS)),
            sql.add_holder.clone(),
            sql.held_function.create.clone(),
        ];
        run(session, sql, names, &script)?;
    }
    session.script("COMMIT")
}

/// Runs statements in a transaction that is open, and looks whether what locks need is there then.
fn run(
    session: &mut dyn SchemaSession,
    sql: &Sql,
    names: &TableNames,
    script: &[String],
) -> Result<(), LockError> {
    session.script(&script.join(";\n"))?;
    // Another role may have created a function meanwhile: to replace it changes its body, not its owner.
    let findings = inspect(session, sql, names)?;
    findings.refuse(sql)?;
    match findings.of(&MISSING).next() {
        Some(still) => Err(LockError::invalid(format!(
            "{still} in schema {}, and it cannot be replaced: drop it, then call setup_schema()",
            quote(&sql.schema)
        ))
        .nothing_applied()),
        None => Ok(()),
    }
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
    script.push(sql.held_function.create.clone());
    script.push("COMMIT".to_owned());
    let mut text = String::new();
    for statement in script {
        text.push_str(statement.trim());
        text.push_str(";\n");
    }
    text
}
