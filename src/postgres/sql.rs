//! The SQL of one pair of tables, with its names put in. Names are quoted here and nowhere else.

use sha2::{Digest, Sha256};

use crate::keyspace::{DEFAULT_FENCE_TABLE, DEFAULT_TABLE, TableNames};

/// Part of every function's name. Raised when a body changes, so that two releases can use one database.
const VERSION: u32 = 1;

const SCHEMA: &str = include_str!("schema.sql");
const FUNCTIONS: &str = include_str!("functions.sql");
const INSPECT: &str = include_str!("inspect.sql");
const SEPARATOR: &str = "\n----\n";
/// What stands around a body in functions.sql.
const BODY: &str = "$syncguard$";

/// The first words to a session: whether it is a standby's; the table's schema, as the connection's search_path finds it, else
/// where a new table would go; whether the process that runs this is $2, the one the start-up named. If so, no pooler is in
/// between, and what every call needs is set for the whole session. Operators are qualified: this runs before anything is
/// known about the path.
pub(crate) const GREET: &str = "SELECT pg_catalog.pg_is_in_recovery(), coalesce((\
    SELECT s.name::pg_catalog.text FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s(name, place) \
      JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) s.name \
      JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid \
        AND c.relname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
      ORDER BY s.place LIMIT 1), pg_catalog.current_schema()::pg_catalog.text), \
    CASE WHEN pg_catalog.pg_backend_pid()::pg_catalog.int8 OPERATOR(pg_catalog.=) $2 THEN pg_catalog.concat(\
      pg_catalog.set_config('default_transaction_isolation', 'read committed', false), \
      pg_catalog.set_config('default_transaction_read_only', 'off', false), \
      pg_catalog.set_config('default_transaction_deferrable', 'off', false), \
      pg_catalog.set_config('lock_timeout', '0', false), \
      pg_catalog.set_config('enable_seqscan', 'off', false)) IS NOT NULL ELSE false END";

/// A statement that is sent often. A session of our own knows it by its name.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

/// Everything that is sent for one pair of tables in one schema.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) schema: String,
    pub(crate) acquire: Call,
    pub(crate) extend: Call,
    pub(crate) release: Call,
    /// The expiry and the server's time, and no more: the row's lock id proves ownership.
    pub(crate) is_locked: Call,
    pub(crate) by_key: Call,
    pub(crate) by_id: Call,
    pub(crate) purge: String,
    /// Listens for releases.
    pub(crate) listen: String,
    /// Says that somebody waits for a storage key; answers what a notification of it says.
    pub(crate) watch: String,
    pub(crate) unwatch: String,
    /// Creates the lock table with its unique index, and the fence table.
    pub(crate) create_locks: String,
    pub(crate) create_fences: String,
    pub(crate) create_expiry_index: String,
    pub(crate) functions: [Function; 3],
}

/// A function that `setup_schema` creates.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) create: String,
    /// The body, as the catalog shows it.
    pub(crate) body: String,
}

impl Sql {
    pub(crate) fn new(schema: &str, names: &TableNames) -> Self {
        let q = |name: &str| format!("{}.{}", quote(schema), quote(name));
        let (locks, fences) = (q(&names.lock), q(&names.fence));
        let function_names =
            ["acquire", "extend", "release"].map(|verb| function_name(verb, names));
        let channel = channel(schema, names);
        let render = |template: &str| {
            template
                .replace("@CHANNEL@", &channel)
                .replace("@LOCKS@", &locks)
                .replace("@FENCES@", &fences)
                .replace("@ACQUIRE@", &q(&function_names[0]))
                .replace("@EXTEND@", &q(&function_names[1]))
                .replace("@RELEASE@", &q(&function_names[2]))
                .replace(
                    "@LOCK_ID_INDEX@",
                    &quote(&format!("idx_{}_lock_id", names.lock)),
                )
                .replace(
                    "@EXPIRES_INDEX@",
                    &quote(&format!("idx_{}_expires", names.lock)),
                )
        };
        let mut tables = SCHEMA.split(SEPARATOR).map(render);
        let mut table = || tables.next().unwrap_or_default();
        let (create_locks, create_expiry_index, create_fences) = (table(), table(), table());
        let mut creates = FUNCTIONS.split(SEPARATOR).map(render);
        let functions = function_names.clone().map(|name| {
            let create = creates.next().unwrap_or_default();
            let body = create.split(BODY).nth(1).unwrap_or_default().to_owned();
            Function { name, create, body }
        });
        let row = format!(
            "SELECT t.lock_id, t.fence, t.expires_at_ms, t.acquired_at_ms, t.user_key, {NOW_MS} FROM {locks} t"
        );
        Self {
            schema: schema.to_owned(),
            acquire: Call {
                name: "syncguard_acquire",
                text: format!("SELECT {}($1,$2,$3,$4,$5,$6,$7)", q(&function_names[0])),
            },
            extend: Call {
                name: "syncguard_extend",
                text: format!("SELECT {}($1,$2,$3)", q(&function_names[1])),
            },
            release: Call {
                name: "syncguard_release",
                text: format!("SELECT {}($1,$2)", q(&function_names[2])),
            },
            listen: format!("LISTEN {}", quote(&channel)),
            watch: format!(
                "SELECT pg_catalog.hashtext($1)::pg_catalog.text, {}",
                waiting("lock", &channel)
            ),
            unwatch: format!("SELECT {}", waiting("unlock", &channel)),
            is_locked: Call {
                name: "syncguard_is_locked",
                text: format!(
                    "SELECT t.expires_at_ms, {NOW_MS} FROM {locks} t WHERE t.key OPERATOR(pg_catalog.=) $1"
                ),
            },
            by_key: Call {
                name: "syncguard_by_key",
                text: format!("{row} WHERE t.key OPERATOR(pg_catalog.=) $1"),
            },
            by_id: Call {
                name: "syncguard_by_id",
                text: format!("{row} WHERE t.lock_id OPERATOR(pg_catalog.=) $1"),
            },
            purge: purge(&locks),
            create_locks,
            create_fences,
            create_expiry_index,
            functions,
        }
    }

    pub(crate) fn inspect(&self) -> &'static str {
        INSPECT
    }
}

/// The server's clock in whole milliseconds, as the functions read it.
const NOW_MS: &str = "pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8";

/// Removes expired locks by the expiry index. Rows that anybody has locked are passed over. No advisory lock is needed: who
/// acquires a key locks its row too, and finds it gone or not ours to remove. The condition stands twice because a row may
/// change hands between the look and the lock.
fn purge(locks: &str) -> String {
    format!(
        "WITH cutoff(ms) AS MATERIALIZED (SELECT {NOW_MS} OPERATOR(pg_catalog.-) $1), \
         dead AS MATERIALIZED (SELECT t.key, t.lock_id FROM {locks} t \
           WHERE t.expires_at_ms OPERATOR(pg_catalog.<=) (SELECT ms FROM cutoff) \
           ORDER BY t.expires_at_ms LIMIT $2 FOR UPDATE OF t SKIP LOCKED), \
         gone AS (DELETE FROM {locks} t USING dead \
           WHERE t.key OPERATOR(pg_catalog.=) dead.key AND t.lock_id OPERATOR(pg_catalog.=) dead.lock_id \
             AND t.expires_at_ms OPERATOR(pg_catalog.<=) (SELECT ms FROM cutoff) RETURNING 1) \
         SELECT pg_catalog.count(*) FROM gone"
    )
}

/// One function per verb, version and pair of tables; several pairs may live in one schema.
/// The channel on which the releases of one pair of tables are told: its names as a hash, which is always a legal name.
fn channel(schema: &str, names: &TableNames) -> String {
    let whole = format!("{schema}\0{}\0{}", names.lock, names.fence);
    let digest = Sha256::digest(whole.as_bytes());
    let hex: String = digest[..16].iter().map(|b| format!("{b:02x}")).collect();
    format!("syncguard_{hex}")
}

/// Takes or gives back the sign that somebody waits for a key. Its numbers are those of the release function.
fn waiting(verb: &str, channel: &str) -> String {
    format!(
        "pg_catalog.pg_advisory_{verb}_shared(pg_catalog.hashtext('{channel}'), pg_catalog.hashtext($1))"
    )
}

fn function_name(verb: &str, names: &TableNames) -> String {
    let base = format!("syncguard_v{VERSION}_{verb}");
    if names.lock == DEFAULT_TABLE && names.fence == DEFAULT_FENCE_TABLE {
        return base;
    }
    let digest = Sha256::digest(format!("{}\0{}", names.lock, names.fence).as_bytes());
    let tail: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    format!("{base}_{tail}")
}

/// The one way a name gets into a statement. What gets here from options is already limited to letters, digits and `_`; the
/// schema that a search_path names is not.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lock: &str, fence: &str) -> TableNames {
        TableNames::new(None, Some(lock), Some(fence)).expect("legal names")
    }

    #[test]
    fn a_changed_body_has_a_new_version() {
        let digest = Sha256::digest(FUNCTIONS.as_bytes());
        let hex: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            (VERSION, hex.as_str()),
            (1, "9aef0ef4a06d2ff3"),
            "functions.sql has changed: if it was ever released, raise VERSION"
        );
    }

    #[test]
    fn every_name_is_put_in_and_quoted() {
        let sql = Sql::new("a\"b", &names("Locks", "order"));
        let all = format!("{sql:?}");
        assert!(!all.contains('@'), "{all}");
        assert!(sql.by_key.text.contains(r#""a""b"."Locks""#), "{all}");
        assert!(
            sql.functions
                .iter()
                .all(|f| f.create.contains(&f.body) && f.body.len() > 100)
        );
    }

    #[test]
    fn function_names_tell_tables_and_fit() {
        let name = |lock: &str, fence: &str| function_name("acquire", &names(lock, fence));
        assert_eq!(
            name(DEFAULT_TABLE, DEFAULT_FENCE_TABLE),
            "syncguard_v1_acquire"
        );
        assert_ne!(name("a", "b_c"), name("a_b", "c"));
        assert_ne!(name("a", "b"), name("A", "B"));
        assert!(name(&"x".repeat(51), &"y".repeat(63)).len() <= 63);
    }
}
