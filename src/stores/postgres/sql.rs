//! The SQL of one pair of tables, with its names put in. Names are quoted here and nowhere else. It uses the names of
//! `backend::keyspace`.

use sha2::{Digest, Sha256};

use crate::backend::keyspace::{DEFAULT_FENCE_TABLE, DEFAULT_TABLE, TableNames};

/// Part of every function's name. Raised when a body changes, so that two releases can use one database.
const VERSION: u32 = 1;

const SCHEMA: &str = include_str!("schema.sql");
const FUNCTIONS: &str = include_str!("functions.sql");
const INSPECT: &str = include_str!("inspect.sql");
const SEPARATOR: &str = "\n----\n";
/// What stands around a body in functions.sql.
const BODY: &str = "$syncguard$";
/// What stands before the parameters of a function there.
const PARAMETERS_BEGIN: &str = "@(";
/// What stands behind them.
const PARAMETERS_END: &str = ")\nLANGUAGE";

/// The server's clock in whole milliseconds, as the functions read it.
macro_rules! now_ms {
    () => {
        "pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8"
    };
}
const NOW_MS: &str = now_ms!();

/// The first words to a session: whether it is a standby's; the table's schema, as the connection's search_path finds it, else
/// where a new table would go; whether the process that runs this is $2, the one the start-up named. If so, no pooler is in
/// between, and what every call needs is set for the whole session; and the server's clock. Operators are qualified: this runs before anything is
/// known about the path.
pub(crate) const GREET: &str = concat!(
    "SELECT pg_catalog.pg_is_in_recovery(), coalesce((\
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
      pg_catalog.set_config('enable_seqscan', 'off', false)) IS NOT NULL ELSE false END, ",
    now_ms!()
);

/// A statement that is sent often. A session of our own knows it by its name.
#[derive(Debug)]
pub(crate) struct FunctionCall {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

/// Everything that is sent for one pair of tables in one schema.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) schema: String,
    pub(crate) acquire: FunctionCall,
    pub(crate) extend: FunctionCall,
    pub(crate) release: FunctionCall,
    /// The expiry and the server's time, and no more: the row's lock id proves ownership.
    pub(crate) is_locked: FunctionCall,
    pub(crate) by_key: FunctionCall,
    pub(crate) by_id: FunctionCall,
    pub(crate) purge: String,
    /// Listens for releases.
    pub(crate) listen: String,
    /// Says that a storage key has a waiter; answers what a notification of it says.
    pub(crate) watch: String,
    pub(crate) unwatch: String,
    /// Creates the lock table with its unique index, and the fence table.
    pub(crate) create_locks: String,
    pub(crate) create_fences: String,
    pub(crate) create_expiry_index: String,
    pub(crate) functions: [Function; 3],
}

/// A function that `setup_schema` creates. Everything but its name is read from functions.sql.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) create: String,
    /// The body, as the catalog shows it.
    body: String,
    /// The types of what it is called with.
    inputs: Vec<String>,
    /// Mode, name and type of every parameter, as inspect.sql writes them: `i p_key pg_catalog.text, …`.
    parameters: String,
}

impl Function {
    /// `template` is its part of functions.sql; `fill` puts the names in.
    fn new(name: String, template: &str, fill: impl Fn(&str) -> String) -> Self {
        let mut parts = template.split(BODY);
        let mut part = || parts.next().unwrap_or_default();
        let (head, body) = (part(), fill(part()));
        let tag = dollar_tag(&body);
        let Parameters { inputs, all } = Parameters::read(head);
        Self {
            name,
            create: format!("{}{tag}{body}{tag}", fill(head)),
            body,
            inputs,
            parameters: all,
        }
    }

    /// A call that reaches this function and no other of the same name: every parameter has its exact type.
    fn call(&self, schema: &str) -> String {
        let inputs = self.inputs.iter().enumerate();
        let params: Vec<_> = inputs.map(|(n, t)| format!("${}::{t}", n + 1)).collect();
        format!(
            "SELECT {}.{}({})",
            quote(schema),
            quote(&self.name),
            params.join(", ")
        )
    }
}

/// What the head of a function in functions.sql declares.
struct Parameters {
    /// The types of the inputs.
    inputs: Vec<String>,
    /// All parameters with mode, name and type.
    all: String,
}

impl Parameters {
    fn read(head: &str) -> Self {
        let list = head
            .split_once(PARAMETERS_BEGIN)
            .and_then(|(_, rest)| rest.split_once(PARAMETERS_END))
            .map_or("", |(list, _)| list);
        let (mut inputs, mut all) = (Vec::new(), Vec::new());
        for parameter in list.split(',').map(str::trim) {
            match parameter.strip_prefix("OUT ") {
                Some(output) => all.push(format!("o {output}")),
                None => {
                    all.push(format!("i {parameter}"));
                    let (_, type_) = parameter.split_once(' ').unwrap_or_default();
                    inputs.push(type_.to_owned());
                }
            }
        }
        Self {
            inputs,
            all: all.join(", "),
        }
    }
}

/// What may stand around `body`: a name in it may look like the end of it.
fn dollar_tag(body: &str) -> String {
    let mut tag = BODY.to_owned();
    let mut n = 0u32;
    while body.contains(&tag) {
        n += 1;
        tag = format!("$syncguard{n}$");
    }
    tag
}

/// Puts texts in the place of the words between at signs. In one go: a name may hold such a word.
fn fill(template: &str, words: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len() + 256);
    for (n, part) in template.split('@').enumerate() {
        let word = words.iter().find(|(word, _)| n % 2 == 1 && *word == part);
        out.push_str(word.map_or(part, |(_, text)| text));
    }
    out
}

impl Sql {
    pub(crate) fn new(schema: &str, names: &TableNames) -> Self {
        let q = |name: &str| format!("{}.{}", quote(schema), quote(name));
        let (locks, fences) = (q(&names.lock), q(&names.fence));
        let function_names =
            ["acquire", "extend", "release"].map(|verb| function_name(verb, names));
        let channel = channel(schema, names);
        let [acquire, extend, release] = function_names.clone().map(|name| q(&name));
        let words = [
            ("CHANNEL", channel.as_str()),
            ("LOCKS", &locks),
            ("FENCES", &fences),
            ("ACQUIRE", &acquire),
            ("EXTEND", &extend),
            ("RELEASE", &release),
            (
                "LOCK_ID_INDEX",
                &quote(&format!("idx_{}_lock_id", names.lock)),
            ),
            (
                "EXPIRES_INDEX",
                &quote(&format!("idx_{}_expires", names.lock)),
            ),
        ];
        let render = |template: &str| fill(template, &words);
        let mut tables = SCHEMA.split(SEPARATOR).map(render);
        let mut table = || tables.next().unwrap_or_default();
        let (create_locks, create_expiry_index, create_fences) = (table(), table(), table());
        let mut templates = FUNCTIONS.split(SEPARATOR);
        let functions = function_names
            .map(|name| Function::new(name, templates.next().unwrap_or_default(), render));
        let row = format!(
            "SELECT t.lock_id, t.fence, t.expires_at_ms, t.acquired_at_ms, t.user_key, {NOW_MS} FROM {locks} t"
        );
        Self {
            schema: schema.to_owned(),
            acquire: FunctionCall {
                name: "syncguard_acquire",
                text: functions[0].call(schema),
            },
            extend: FunctionCall {
                name: "syncguard_extend",
                text: functions[1].call(schema),
            },
            release: FunctionCall {
                name: "syncguard_release",
                text: functions[2].call(schema),
            },
            listen: format!("LISTEN {}", quote(&channel)),
            watch: format!(
                "SELECT pg_catalog.hashtext($1)::pg_catalog.text, {}",
                waiting("lock", &channel)
            ),
            unwatch: format!("SELECT {}", waiting("unlock", &channel)),
            is_locked: FunctionCall {
                name: "syncguard_is_locked",
                text: format!(
                    "SELECT t.expires_at_ms, {NOW_MS} FROM {locks} t WHERE t.key OPERATOR(pg_catalog.=) $1"
                ),
            },
            by_key: FunctionCall {
                name: "syncguard_by_key",
                text: format!("{row} WHERE t.key OPERATOR(pg_catalog.=) $1"),
            },
            by_id: FunctionCall {
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

    /// What inspect.sql compares the functions with, as JSON.
    pub(crate) fn expected_functions(&self) -> String {
        let all = self.functions.iter().map(|f| {
            serde_json::json!({
                "name": f.name,
                "body": f.body,
                "inputs": f.inputs.join(", "),
                "parameters": f.parameters,
            })
        });
        serde_json::Value::Array(all.collect()).to_string()
    }
}

/// Removes expired locks by the expiry index. Rows that another session has locked are passed over. No advisory lock is needed: an
/// acquire locks the row of its key too. The condition stands twice because the row may be granted again between the look and
/// the lock.
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

/// Takes or gives back the sign that a key has a waiter. Its numbers are those of the release function.
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
            (1, "e2c9791e22f6e176"),
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
    fn a_call_names_the_types_that_the_function_has() {
        let sql = Sql::new("s", &names(DEFAULT_TABLE, DEFAULT_FENCE_TABLE));
        let release = &sql.functions[2];
        assert_eq!(
            release.parameters,
            "i p_lock_id pg_catalog.text, i p_tolerance_ms pg_catalog.int8, o o_found pg_catalog.bool, o o_released pg_catalog.bool"
        );
        assert_eq!(
            sql.release.text,
            r#"SELECT "s"."syncguard_v1_release"($1::pg_catalog.text, $2::pg_catalog.int8)"#
        );
        for function in &sql.functions {
            assert!(!function.inputs.is_empty() && !function.inputs.contains(&String::new()));
        }
    }

    #[test]
    fn no_name_ends_a_body_or_is_filled_in_again() {
        for schema in [
            "a$syncguard$b",
            "$syncguard1$$syncguard$",
            "@FENCES@",
            "@ACQUIRE@(",
            "a@b",
        ] {
            let sql = Sql::new(schema, &names(DEFAULT_TABLE, DEFAULT_FENCE_TABLE));
            for f in &sql.functions {
                let (_, tagged) = f.create.split_once("AS $").expect("a quoted body");
                let tag = format!("${}$", tagged.split_once('$').expect("a tag").0);
                let parts: Vec<_> = f.create.rsplitn(3, &tag).collect();
                assert_eq!(parts[..2], ["", f.body.as_str()], "{schema}");
                assert!(f.body.contains(&quote(schema)), "{schema}");
                assert!(!f.body.contains(&tag), "{schema}");
            }
        }
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
