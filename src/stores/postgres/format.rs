//! What the Postgres store creates and sends, for one pair of tables: [`PostgresStatements`]. It uses `sql` and the names of
//! `backend::keyspace`.
//!
//! Parameters and outputs of the functions are in `docs/wire-format.md`. Keys come from [`KeySpace::table`](crate::KeySpace::table).

use super::setup;
use super::sql::{GREET, Sql, held_function_name};
use crate::backend::keyspace::TableNames;
use crate::types::error::LockError;

pub use super::error::refusal;
pub use super::message::{Param, Row};
pub use super::rows::{
    latest_clock_ms, list_params, read_acquire, read_extend, read_find, read_is_locked, read_list,
    read_purge, read_release,
};
pub use super::setup::SchemaSession;
pub use super::sql::FUNCTIONS_VERSION;

/// The statements of one pair of tables, with its names in them.
///
/// A statement that writes runs in a transaction of its own that begins with `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`: a role
/// may have another default, under which the functions would look at an old state. The sender bounds it with `statement_timeout` and
/// `lock_timeout`, and never leaves the transaction open: other callers of the key wait for its end.
///
/// ```
/// use syncguard::format::postgres::PostgresStatements;
///
/// let sql = PostgresStatements::new("public", None, None)?;
/// for statement in sql.setup() {
///     println!("{statement};"); // for a tool that sets databases up
/// }
/// assert!(sql.release().starts_with(r#"SELECT "public"."syncguard_v1_release"($1::"#));
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Debug)]
pub struct PostgresStatements {
    sql: Sql,
    names: TableNames,
}

/// What a session says of the tables, before they are used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Greeting {
    /// The schema of the tables, as the session's `search_path` finds it; else where new ones would go. `None` if the path leads nowhere.
    pub schema: Option<String>,
    /// Whether texts of holders can be stored: with [`acquire_held`](PostgresStatements::acquire_held).
    pub holders: bool,
}

/// The first question to a session: where the tables are. Give its rows to [`read_greeting`].
///
/// ```
/// use syncguard::format::postgres::greet;
///
/// greet(None, None, None, |sql, params| {
///     assert!(sql.starts_with("SELECT ") && params.len() == 4);
/// })?;
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for names as [`PostgresStatements::new`] refuses them.
pub fn greet<T>(
    schema: Option<&str>,
    table: Option<&str>,
    fence_table: Option<&str>,
    ask: impl FnOnce(&str, &[Param<'_>]) -> T,
) -> Result<T, LockError> {
    let names = TableNames::new(schema, table, fence_table)?;
    // No process has this number: nothing is set for the session.
    let params = [
        Param::Text(&names.lock),
        Param::Int8(-1),
        Param::Text(&held_function_name(&names)),
        Param::Text(schema.unwrap_or_default()),
    ];
    Ok(ask(GREET, &params))
}

/// What a session answered to [`greet`].
///
/// ```
/// use syncguard::format::postgres::{Row, read_greeting};
///
/// let row = Row::from_texts(["f", "public", "f", "1790000000000", "t"].map(Some));
/// assert_eq!(read_greeting(&[row])?.schema.as_deref(), Some("public"));
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) if it is no answer to that.
pub fn read_greeting(rows: &[Row]) -> Result<Greeting, LockError> {
    let row = rows.first().ok_or_else(super::error::garbled)?;
    Ok(Greeting {
        schema: row.text(1)?.map(str::to_owned),
        holders: row.bool(4)?,
    })
}

impl PostgresStatements {
    /// The statements for tables in `schema`; a table without a name has the default one.
    ///
    /// ```
    /// use syncguard::format::postgres::PostgresStatements;
    ///
    /// let sql = PostgresStatements::new("app", Some("locks"), Some("fences"))?;
    /// assert!(sql.find_by_key().contains(r#""app"."locks""#));
    /// assert!(PostgresStatements::new("app", Some("no name"), None).is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a name that is not letters, digits and `_`, is too long, or for two
    /// tables of one name: choose another name.
    pub fn new(
        schema: &str,
        table: Option<&str>,
        fence_table: Option<&str>,
    ) -> Result<Self, LockError> {
        let names = TableNames::new(Some(schema), table, fence_table)?;
        Ok(Self {
            sql: Sql::new(schema, &names),
            names,
        })
    }

    /// The same for a schema that a [`Greeting`] has named: a `search_path` may find schemas of any name.
    ///
    /// ```
    /// use syncguard::format::postgres::PostgresStatements;
    ///
    /// let sql = PostgresStatements::in_found_schema("my schema", None, None)?;
    /// assert!(sql.find_by_key().contains(r#""my schema"."syncguard_locks""#));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for names of tables as [`new`](Self::new) refuses them.
    pub fn in_found_schema(
        schema: &str,
        table: Option<&str>,
        fence_table: Option<&str>,
    ) -> Result<Self, LockError> {
        let names = TableNames::new(None, table, fence_table)?;
        Ok(Self {
            sql: Sql::new(schema, &names),
            names,
        })
    }

    /// What creates the tables, the indexes and the functions, in this order. `setup_schema()` of a client creates only what is
    /// missing, and checks what is there.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.setup().concat().contains("CREATE TABLE \"public\".\"syncguard_locks\""));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn setup(&self) -> Vec<&str> {
        let tables = [
            &self.sql.create_locks,
            &self.sql.create_expiry_index,
            &self.sql.create_fences,
        ];
        let held = std::iter::once(&self.sql.held_function);
        let functions = self
            .sql
            .functions
            .iter()
            .chain(held)
            .map(|function| &function.create);
        tables
            .into_iter()
            .chain(functions)
            .map(String::as_str)
            .collect()
    }

    /// Takes a lock: calls the function `acquire`.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.acquire().contains("syncguard_v1_acquire"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn acquire(&self) -> &str {
        &self.sql.acquire.text
    }

    /// Takes a lock and stores what its holder says of itself: calls the function `acquire_held`.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.acquire_held().contains("syncguard_v1_acquire_held"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn acquire_held(&self) -> &str {
        &self.sql.acquire_held.text
    }

    /// Releases a lock: calls the function `release`.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.release().contains("syncguard_v1_release"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn release(&self) -> &str {
        &self.sql.release.text
    }

    /// Extends a lock: calls the function `extend`.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.extend().contains("syncguard_v1_extend"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn extend(&self) -> &str {
        &self.sql.extend.text
    }

    /// The end of the lease of a key ($1) and the server's time: the caller asks [`is_live`](crate::is_live).
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.is_locked().starts_with("SELECT t.expires_at_ms, "));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn is_locked(&self) -> &str {
        &self.sql.is_locked.text
    }

    /// The row of a key ($1): lock id, fence, end of the lease, time of the grant, key, and the server's time.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.find_by_key().ends_with("t.key OPERATOR(pg_catalog.=) $1"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn find_by_key(&self) -> &str {
        &self.sql.by_key.text
    }

    /// The same row, by the lock id ($1).
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.find_by_id().ends_with("t.lock_id OPERATOR(pg_catalog.=) $1"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn find_by_id(&self) -> &str {
        &self.sql.by_id.text
    }

    /// Removes at most $2 locks whose lease ended more than $1 milliseconds ago, and answers how many.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.purge_expired().contains("SKIP LOCKED"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn purge_expired(&self) -> &str {
        &self.sql.purge
    }

    /// The row as [`find_by_key`](Self::find_by_key) answers it, and behind it what the holder says of itself.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.find_by_key_held().contains("t.holder"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn find_by_key_held(&self) -> &str {
        &self.sql.by_key_held.text
    }

    /// The same row, by the lock id ($1).
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.find_by_id_held().contains("t.holder"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn find_by_id_held(&self) -> &str {
        &self.sql.by_id_held.text
    }

    /// One page of a listing: the first one, or one that `follows` another; with what holders say of themselves if `held`. Its parameters
    /// are those of [`list_params`].
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert!(sql.list(false, true).contains("ORDER BY t.key LIMIT $2"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn list(&self, follows: bool, held: bool) -> &str {
        self.sql.list(follows, held)
    }

    /// The schema of the tables.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", None, None)?;
    /// assert_eq!((sql.schema(), sql.table()), ("public", "syncguard_locks"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn schema(&self) -> &str {
        &self.sql.schema
    }

    /// The table of locks.
    ///
    /// ```
    /// let sql = syncguard::format::postgres::PostgresStatements::new("public", Some("locks"), None)?;
    /// assert_eq!(sql.table(), "locks");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn table(&self) -> &str {
        &self.names.lock
    }

    /// Does what `setup_schema()` of a client does, in transactions of `session`, whose statements take at most `ms` milliseconds
    /// each: creates what is missing and leaves alone what is there and right. Answers whether texts of holders can be stored now.
    ///
    /// ```
    /// use syncguard::LockError;
    /// use syncguard::format::postgres::{Param, PostgresStatements, Row, SchemaSession};
    ///
    /// struct Printed;
    ///
    /// impl SchemaSession for Printed {
    ///     fn script(&mut self, sql: &str) -> Result<(), LockError> {
    ///         println!("{sql};");
    ///         Ok(())
    ///     }
    ///
    ///     fn query(&mut self, _: &str, _: &[Param<'_>]) -> Result<Vec<Row>, LockError> {
    ///         Ok(Vec::new()) // nothing is missing
    ///     }
    /// }
    ///
    /// assert!(PostgresStatements::new("public", None, None)?.set_up(&mut Printed, 5000)?);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// Those of the session, and those of [`Backend::setup_schema`](crate::Backend::setup_schema), such as
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for tables that cannot hold locks. After an error the transaction is open:
    /// roll it back.
    pub fn set_up(&self, session: &mut dyn SchemaSession, ms: i32) -> Result<bool, LockError> {
        setup::create_in(session, &self.sql, &self.names, ms)
    }

    /// Looks at everything in a transaction of `session`, as `check()` of a client does. The transaction is left open: roll it back.
    ///
    /// ```
    /// use syncguard::LockError;
    /// use syncguard::format::postgres::{Param, PostgresStatements, Row, SchemaSession};
    ///
    /// struct Found;
    ///
    /// impl SchemaSession for Found {
    ///     fn script(&mut self, _: &str) -> Result<(), LockError> {
    ///         Ok(())
    ///     }
    ///
    ///     fn query(&mut self, _: &str, _: &[Param<'_>]) -> Result<Vec<Row>, LockError> {
    ///         Ok(vec![Row::from_texts([Some("unsafe"), Some("fsync = off")])])
    ///     }
    /// }
    ///
    /// let sql = PostgresStatements::new("public", None, None)?;
    /// assert_eq!(sql.check(&mut Found, 5000)?, ["fsync = off"]);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// Those of the session, and those of [`Backend::check`](crate::Backend::check), such as
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the set-up is missing.
    pub fn check(
        &self,
        session: &mut dyn SchemaSession,
        ms: i32,
    ) -> Result<Vec<String>, LockError> {
        setup::check_in(session, &self.sql, &self.names, ms)
    }
}
