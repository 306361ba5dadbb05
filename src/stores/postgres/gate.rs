//! The gate of Postgres: a table with the newest fence per resource, and a function that the caller's own transaction calls. It
//! uses `connection`, `message`, `setup`, `sql`, `verbs`, `backend` and `types`.
//!
//! [`Client::setup_fence_gate`](crate::Client::setup_fence_gate) creates both. The function needs no client of this library: any driver
//! calls it. It passes and remembers, or raises an error: [`STALE`] for a former holder, [`NO_FENCE`] for what is no fence or no
//! name. The row of the resource is locked to the end of the transaction, so transactions of two holders are ordered, at every isolation
//! level; REPEATABLE READ and SERIALIZABLE may answer 40001 instead, after which the transaction is to be tried again.

use super::connection::{Mode, PostgresConnection};
use super::message::Param;
use super::setup::{self, Findings};
use super::sql::{GateSql, Sql, expected, quote};
use super::verbs::PostgresVerbs;
use crate::backend::call::Call;
use crate::backend::gate::{GateStore, check_resource};
use crate::backend::keyspace::TableNames;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::types::error::LockError;
use crate::types::fence::Fence;

/// The SQLSTATE of a refusal: a newer holder has written.
pub const STALE: &str = "SGG01";
/// The SQLSTATE for a fence that is negative, zero, NULL or over the limit, and for a name that is empty or longer than 512 bytes.
pub const NO_FENCE: &str = "SGG02";

pub use super::sql::{GATE_FUNCTION, GATE_TABLE};

/// Passes the gate of the resource $1 with the fence $2, in the schema that the session's `search_path` finds. Make it the first statement
/// of your transaction. [`PostgresGate::pass`] names the schema: take that where others may create functions in a schema of the path.
///
/// A driver shows the SQLSTATE 42883 and "function syncguard_pass(text, bigint) does not exist" where the gate is missing: call
/// [`setup_fence_gate`](crate::Client::setup_fence_gate) once, on a client of this database. Not inside a savepoint: `ROLLBACK TO
/// SAVEPOINT` undoes the pass.
///
/// The casts keep a function of the same name with other parameters from being called instead.
pub const PASS: &str = "SELECT syncguard_pass($1::pg_catalog.text, $2::pg_catalog.int8)";
/// [`PostgresGate::share`] for tables with their default names that the session's `search_path` finds.
pub const SHARE: &str =
    "SELECT 1 FROM syncguard_fence_counters WHERE fence_key = $1 AND fence = $2 FOR SHARE";

const INSPECT: &str = include_str!("gate_inspect.sql");
const MISSING: [&str; 4] = ["no-schema", "no-gates", "no-function", "changed-function"];

/// The statements of the gate in one schema, for drivers of your own.
///
/// ```
/// use syncguard::gate::postgres::PostgresGate;
///
/// let gate = PostgresGate::new("public")?;
/// assert_eq!(gate.pass(), r#"SELECT "public"."syncguard_pass"($1::pg_catalog.text, $2::pg_catalog.int8)"#);
/// for statement in gate.setup() {
///     println!("{statement};"); // for a tool that sets databases up
/// }
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Debug)]
pub struct PostgresGate {
    sql: GateSql,
    share: String,
}

impl PostgresGate {
    /// The statements for a gate in `schema`, and for lock tables with their default names.
    ///
    /// ```
    /// use syncguard::gate::postgres::PostgresGate;
    ///
    /// assert!(PostgresGate::new("app").is_ok());
    /// assert!(PostgresGate::new("no name").is_err());
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a name that is not letters, digits and `_` or is too long: choose
    /// another name.
    pub fn new(schema: &str) -> Result<Self, LockError> {
        Self::checked(schema, None)
    }

    /// As [`new`](Self::new), for [`share`](Self::share) of locks whose clients have
    /// [`fence_table_name`](crate::ClientOptions::fence_table_name).
    ///
    /// ```
    /// use syncguard::gate::postgres::PostgresGate;
    ///
    /// let gate = PostgresGate::with_fence_table("app", "app_fences")?;
    /// assert!(gate.share().contains(r#""app"."app_fences""#));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a name that is not letters, digits and `_` or is too long: choose
    /// another name.
    pub fn with_fence_table(schema: &str, fence_table: &str) -> Result<Self, LockError> {
        Self::checked(schema, Some(fence_table))
    }

    fn checked(schema: &str, fence_table: Option<&str>) -> Result<Self, LockError> {
        let names = TableNames::new(Some(schema), None, fence_table)?;
        let fences = format!("{}.{}", quote(schema), quote(&names.fence));
        Ok(Self {
            sql: GateSql::new(schema),
            share: format!("SELECT 1 FROM {fences} WHERE fence_key = $1 AND fence = $2 FOR SHARE"),
        })
    }

    /// What creates the table and the function, in this order.
    ///
    /// ```
    /// let gate = syncguard::gate::postgres::PostgresGate::new("public")?;
    /// assert!(gate.setup().concat().contains("syncguard_fence_gates"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn setup(&self) -> [&str; 2] {
        [&self.sql.create_table, &self.sql.function.create]
    }

    /// Passes the gate of the resource $1 with the fence $2, inside the caller's own transaction. Make it the first statement.
    ///
    /// ```
    /// let gate = syncguard::gate::postgres::PostgresGate::new("public")?;
    /// assert!(gate.pass().contains("syncguard_pass"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn pass(&self) -> &str {
        &self.sql.pass
    }

    /// The newest fence of the resource $1, for operators.
    ///
    /// ```
    /// let gate = syncguard::gate::postgres::PostgresGate::new("public")?;
    /// assert!(gate.newest().starts_with("SELECT g.fence"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn newest(&self) -> &str {
        &self.sql.newest
    }

    /// Forgets the newest fence of the resource $1 if it is $2, and counts.
    ///
    /// ```
    /// let gate = syncguard::gate::postgres::PostgresGate::new("public")?;
    /// assert!(gate.reset().contains("DELETE"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn reset(&self) -> &str {
        &self.sql.reset
    }

    /// The form without a table of its own, where locks and data share a database: a row is found if the lock whose
    /// [fence key](crate::KeySpace::fence) is $1 was granted last with the fence $2; no row is a refusal. The next grant of the key waits
    /// until the caller's transaction ends, so it needs `idle_in_transaction_session_timeout`; a transaction that takes the same lock
    /// itself waits for itself. At REPEATABLE READ and SERIALIZABLE a refusal may be 40001: try the transaction again with the same fence.
    ///
    /// ```
    /// let gate = syncguard::gate::postgres::PostgresGate::new("public")?;
    /// assert!(gate.share().ends_with("FOR SHARE"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn share(&self) -> &str {
        &self.share
    }
}

impl GateStore for PostgresVerbs {
    fn setup_fence_gate(&self, call: &Call<'_>) -> Result<(), LockError> {
        let limits = self.limits(call)?;
        self.sessions()
            .with(Rank::Ordinary, &limits, |connection, sql| {
                create(connection, sql, &limits)
            })
    }

    fn newest_fence(&self, resource: &str, call: &Call<'_>) -> Result<Option<Fence>, LockError> {
        check_resource(resource)?;
        let limits = self.limits(call)?;
        let rows = self
            .sessions()
            .with(Rank::Ordinary, &limits, |connection, sql| {
                let params = [Param::Text(resource)];
                connection.transact(Mode::Read, &sql.gate.newest, &params, &limits)
            })?;
        match rows.first() {
            None => Ok(None),
            Some(row) => match row.int8(0)?.map(Fence::try_from) {
                Some(Ok(fence)) => Ok(Some(fence)),
                _ => Err(LockError::internal(
                    "the row of the gate holds something else than a fence",
                )),
            },
        }
    }

    fn reset_fence_gate(
        &self,
        resource: &str,
        seen: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError> {
        check_resource(resource)?;
        let limits = self.limits(call)?;
        let rows = self
            .sessions()
            .with(Rank::Ordinary, &limits, |connection, sql| {
                let params = [Param::Text(resource), Param::Int8(seen.into())];
                connection.transact(Mode::Write, &sql.gate.reset, &params, &limits)
            })?;
        let gone = rows.first().map(|row| row.int8(0)).transpose()?.flatten();
        Ok(gone == Some(1))
    }
}

/// Creates what is missing of the gate, in one transaction, and says what is wrong with what is there.
fn create(
    connection: &mut PostgresConnection,
    sql: &Sql,
    limits: &Limits<'_>,
) -> Result<(), LockError> {
    setup::begin(connection, limits)?;
    let findings = inspect(connection, sql, limits)?;
    refuse(&findings, sql)?;
    let mut script = Vec::new();
    if findings.has("no-schema") {
        script.push(format!("CREATE SCHEMA {}", quote(&sql.schema)));
    }
    if findings.has("no-gates") {
        script.push(sql.gate.create_table.clone());
    }
    if findings.has("no-function") || findings.has("changed-function") {
        script.push(sql.gate.function.create.clone());
    }
    if !script.is_empty() {
        connection.script(&script.join(";\n"), limits)?;
        let findings = inspect(connection, sql, limits)?;
        refuse(&findings, sql)?;
        if let Some(still) = findings.of(&MISSING).next() {
            return Err(wrong(still, sql));
        }
    }
    connection.script("COMMIT", limits)
}

fn inspect(
    connection: &mut PostgresConnection,
    sql: &Sql,
    limits: &Limits<'_>,
) -> Result<Findings, LockError> {
    let function = expected([(&sql.gate.function, false)]);
    let params = [&sql.schema, GATE_TABLE, &function].map(Param::Text);
    Findings::read(&connection.query(INSPECT, &params, limits)?)
}

fn refuse(findings: &Findings, sql: &Sql) -> Result<(), LockError> {
    if findings.has("standby") {
        return Err(setup::is_a_standby());
    }
    match findings.of(&["wrong"]).next() {
        Some(what) => Err(wrong(what, sql)),
        None => Ok(()),
    }
}

fn wrong(what: &str, sql: &Sql) -> LockError {
    LockError::invalid(format!(
        "the fence gate in schema {} cannot be used: {what}. Drop it, then call setup_fence_gate()",
        quote(&sql.schema)
    ))
    .nothing_applied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gate::MAX_RESOURCE_BYTES;
    use crate::types::fence::MAX_FENCE;

    #[test]
    fn limits_and_names_are_those_of_the_library() {
        let sql = GateSql::new("a@b");
        let body = &sql.function.create;
        assert!(
            body.contains(&format!("{MAX_FENCE}::"))
                && body.contains(&format!(") {MAX_RESOURCE_BYTES} "))
        );
        assert!(body.contains(STALE) && body.contains(NO_FENCE));
        assert!(!format!("{sql:?}").contains("@GATES@") && sql.pass.contains("\"a@b\""));
    }
}
