//! The SQL of one pair of tables, with its names put in. Names are quoted here and nowhere else. It uses `backend::keyspace` alone.

use sha2::{Digest, Sha256};

use crate::backend::keyspace::{DEFAULT_FENCE_TABLE, DEFAULT_TABLE, TableNames};

/// Part of the name of every function (`syncguard_v1_acquire`). Raised when a body changes, so that two releases can use one database.
pub const FUNCTIONS_VERSION: u32 = 1;

/// The table of the gate: the newest fence per resource.
pub const GATE_TABLE: &str = "syncguard_fence_gates";
/// The function of the gate.
pub const GATE_FUNCTION: &str = "syncguard_pass";

const SCHEMA: &str = include_str!("schema.sql");
const GATE: &str = include_str!("gate.sql");
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
/// between, and what every call needs is set for the whole session; the server's clock; and whether texts of holders can be stored,
/// with the function $3 in the schema $4, or in the one that was found. Operators are qualified: this runs before anything is
/// known about the path.
pub(crate) const GREET: &str = concat!(
    "SELECT pg_catalog.pg_is_in_recovery(), found.name, \
    CASE WHEN pg_catalog.pg_backend_pid()::pg_catalog.int8 OPERATOR(pg_catalog.=) $2 THEN pg_catalog.concat(\
      pg_catalog.set_config('default_transaction_isolation', 'read committed', false), \
      pg_catalog.set_config('default_transaction_read_only', 'off', false), \
      pg_catalog.set_config('default_transaction_deferrable', 'off', false), \
      pg_catalog.set_config('lock_timeout', '0', false), \
      pg_catalog.set_config('enable_seqscan', 'off', false)) IS NOT NULL ELSE false END, ",
    now_ms!(),
    // Whether the texts of holders have their column and their function, and whether this role may use them. A function of a role
    // that neither made the table nor owns the schema would run with our rights.
    ", EXISTS (SELECT FROM pg_catalog.pg_namespace n \
      JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid \
        AND c.relname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
      JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid \
        AND a.attname OPERATOR(pg_catalog.=) 'holder'::pg_catalog.name AND NOT a.attisdropped AND NOT a.attnotnull \
        AND a.atttypid OPERATOR(pg_catalog.=) 'pg_catalog.text'::pg_catalog.regtype::pg_catalog.oid \
      JOIN pg_catalog.pg_proc p ON p.pronamespace OPERATOR(pg_catalog.=) n.oid \
        AND p.proname OPERATOR(pg_catalog.=) $3::pg_catalog.name \
      JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) p.proowner \
      WHERE n.nspname OPERATOR(pg_catalog.=) \
          CASE WHEN $4 OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN $4 ELSE found.name END::pg_catalog.name \
        AND (p.proowner OPERATOR(pg_catalog.=) c.relowner OR p.proowner OPERATOR(pg_catalog.=) n.nspowner OR r.rolsuper) \
        AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE') \
        AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT') AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'INSERT') \
        AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'UPDATE')) \
    FROM (SELECT coalesce((\
    SELECT s.name::pg_catalog.text FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s(name, place) \
      JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) s.name \
      JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid \
        AND c.relname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
      ORDER BY s.place LIMIT 1), pg_catalog.current_schema()::pg_catalog.text) AS name) AS found",
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
    /// The same, which stores the holder's text too.
    pub(crate) acquire_held: FunctionCall,
    pub(crate) extend: FunctionCall,
    pub(crate) release: FunctionCall,
    /// The expiry and the server's time, and no more: the row's lock id proves ownership.
    pub(crate) is_locked: FunctionCall,
    pub(crate) by_key: FunctionCall,
    pub(crate) by_id: FunctionCall,
    /// The same rows with the holder's text.
    pub(crate) by_key_held: FunctionCall,
    pub(crate) by_id_held: FunctionCall,
    pub(crate) purge: String,
    /// Rows in the order of their keys: from the prefix $1 on where the collation of keys keeps to it, or behind the key $1.
    pub(crate) list_from: ListSql,
    pub(crate) list_after: ListSql,
    /// Listens for releases.
    pub(crate) listen: String,
    /// Says that a storage key has a waiter; answers what a notification of it says.
    pub(crate) watch: String,
    pub(crate) unwatch: String,
    /// Creates the lock table with its unique index, and the fence table.
    pub(crate) create_locks: String,
    pub(crate) create_fences: String,
    pub(crate) create_expiry_index: String,
    /// Adds the column for the texts of holders to a table of an older version.
    pub(crate) add_holder: String,
    /// The function of `acquire_held`.
    pub(crate) held_function: Function,
    pub(crate) functions: [Function; 3],
    pub(crate) gate: GateSql,
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
        let held_name = held_function_name(names);
        let acquire_held = q(&held_name);
        let words = [
            ("CHANNEL", channel.as_str()),
            ("LOCKS", &locks),
            ("FENCES", &fences),
            ("ACQUIRE", &acquire),
            ("ACQUIRE_HELD", &acquire_held),
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
        let add_holder = table();
        let held_function = Function::new(held_name, &held_template(), render);
        let mut templates = FUNCTIONS.split(SEPARATOR);
        let functions = function_names
            .map(|name| Function::new(name, templates.next().unwrap_or_default(), render));
        let look = |more: &str, by: &str| {
            format!(
                "SELECT t.lock_id, t.fence, t.expires_at_ms, t.acquired_at_ms, t.user_key, {NOW_MS}{more} FROM {locks} t \
                 WHERE t.{by} OPERATOR(pg_catalog.=) $1"
            )
        };
        Self {
            schema: schema.to_owned(),
            acquire: FunctionCall {
                name: "syncguard_acquire",
                text: functions[0].call(schema),
            },
            acquire_held: FunctionCall {
                name: "syncguard_acquire_held",
                text: held_function.call(schema),
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
                text: look("", "key"),
            },
            by_id: FunctionCall {
                name: "syncguard_by_id",
                text: look("", "lock_id"),
            },
            by_key_held: FunctionCall {
                name: "syncguard_by_key_held",
                text: look(", t.holder", "key"),
            },
            by_id_held: FunctionCall {
                name: "syncguard_by_id_held",
                text: look(", t.holder", "lock_id"),
            },
            purge: purge(&locks),
            list_from: ListSql::new(&locks, ">="),
            list_after: ListSql::new(&locks, ">"),
            create_locks,
            create_fences,
            create_expiry_index,
            add_holder,
            held_function,
            functions,
            gate: GateSql::new(schema),
        }
    }

    pub(crate) fn inspect(&self) -> &'static str {
        INSPECT
    }

    /// The first page of a listing, or the one that follows another.
    pub(crate) fn list(&self, follows: bool, held: bool) -> &str {
        let list = match follows {
            true => &self.list_after,
            false => &self.list_from,
        };
        match held {
            true => &list.held,
            false => &list.plain,
        }
    }

    /// What inspect.sql compares the functions with, as JSON.
    pub(crate) fn expected_functions(&self) -> String {
        let held = std::iter::once((&self.held_function, true));
        expected(self.functions.iter().map(|f| (f, false)).chain(held))
    }
}

/// Functions as JSON, for a look into the catalog; each with whether the library can do without it.
pub(super) fn expected<'a>(functions: impl IntoIterator<Item = (&'a Function, bool)>) -> String {
    let all = functions.into_iter().map(|(f, optional)| {
        serde_json::json!({
            "optional": optional,
            "name": f.name,
            "body": f.body,
            "inputs": f.inputs.join(", "),
            "parameters": f.parameters,
        })
    });
    serde_json::Value::Array(all.collect()).to_string()
}

/// The SQL of the gate in one schema.
#[derive(Debug)]
pub(crate) struct GateSql {
    pub(crate) create_table: String,
    pub(crate) function: Function,
    pub(crate) pass: String,
    pub(crate) newest: String,
    pub(crate) reset: String,
}

impl GateSql {
    pub(crate) fn new(schema: &str) -> Self {
        let q = |name: &str| format!("{}.{}", quote(schema), quote(name));
        let (gates, pass) = (q(GATE_TABLE), q(GATE_FUNCTION));
        let words = [("GATES", gates.as_str()), ("PASS", &pass)];
        let render = |template: &str| fill(template, &words);
        let mut parts = GATE.split(SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        let create_table = render(part());
        let function = Function::new(GATE_FUNCTION.to_owned(), part(), render);
        Self {
            create_table,
            pass: function.call(schema),
            function,
            newest: format!(
                "SELECT g.fence FROM {gates} g WHERE g.resource OPERATOR(pg_catalog.=) $1"
            ),
            reset: format!(
                "WITH gone AS (DELETE FROM {gates} g WHERE g.resource OPERATOR(pg_catalog.=) $1 \
                 AND g.fence OPERATOR(pg_catalog.=) $2 RETURNING 1) SELECT pg_catalog.count(*) FROM gone"
            ),
        }
    }
}

/// The two forms of a listing: for a table with the holder's text, and for one without.
#[derive(Debug)]
pub(crate) struct ListSql {
    pub(crate) plain: String,
    pub(crate) held: String,
}

impl ListSql {
    /// $1 is the key to begin at, $2 how many rows to examine, $3 and $4 the schema and the table, $5 is empty if $1 is a prefix. In another collation than "C" the
    /// keys that begin alike need not stand together: the listing then begins at the first key.
    fn new(locks: &str, compare: &str) -> Self {
        let text = |more: &str| {
            format!(
                "WITH bytewise(is_c) AS MATERIALIZED (SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute a \
                   JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid \
                     AND c.relname OPERATOR(pg_catalog.=) $4::pg_catalog.name \
                   JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
                     AND n.nspname OPERATOR(pg_catalog.=) $3::pg_catalog.name \
                   WHERE a.attname OPERATOR(pg_catalog.=) 'key'::pg_catalog.name \
                     AND a.attcollation OPERATOR(pg_catalog.=) 'pg_catalog.\"C\"'::pg_catalog.regcollation::pg_catalog.oid)) \
                 SELECT t.lock_id, t.fence, t.expires_at_ms, t.acquired_at_ms, t.user_key, {NOW_MS}, {more}, t.key, \
                   (SELECT is_c FROM bytewise) FROM {locks} t \
                 WHERE t.key OPERATOR(pg_catalog.{compare}) \
                   (SELECT CASE WHEN is_c OR $5 OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN $1 ELSE '' END FROM bytewise) \
                 ORDER BY t.key LIMIT $2"
            )
        };
        Self {
            plain: text("NULL::pg_catalog.text"),
            held: text("t.holder"),
        }
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

/// The function that takes a lock and stores the holder's text with it.
pub(crate) fn held_function_name(names: &TableNames) -> String {
    function_name("acquire_held", names)
}

/// What the function that stores the holder's text has in place of texts of the one that does not. They decide alike, because they
/// are one text.
const HELD: [[&str; 2]; 7] = [
    ["@ACQUIRE@(", "@ACQUIRE_HELD@("],
    [
        "p_not_after_ms pg_catalog.int8,",
        "p_holder pg_catalog.text, p_not_after_ms pg_catalog.int8,",
    ],
    [
        "OUT o_late_ms pg_catalog.int8)",
        "OUT o_late_ms pg_catalog.int8, OUT o_holder pg_catalog.text)",
    ],
    [
        "t.expires_at_ms INTO o_lock_id, o_fence, o_expires_at_ms\n",
        "t.expires_at_ms, t.holder INTO o_lock_id, o_fence, o_expires_at_ms, o_holder\n",
    ],
    [
        "user_key = p_user_key\n",
        "user_key = p_user_key, holder = p_holder\n",
    ],
    ["fence, user_key)\n", "fence, user_key, holder)\n"],
    ["o_fence, p_user_key);", "o_fence, p_user_key, p_holder);"],
];

fn held_template() -> String {
    let acquire = FUNCTIONS.split(SEPARATOR).next().unwrap_or_default();
    let replace = |text: String, [from, to]: &[&str; 2]| text.replacen(from, to, 1);
    HELD.iter().fold(acquire.to_owned(), replace)
}

fn function_name(verb: &str, names: &TableNames) -> String {
    let base = format!("syncguard_v{FUNCTIONS_VERSION}_{verb}");
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
            (FUNCTIONS_VERSION, hex.as_str()),
            (1, "95ee3064a918f2b6"),
            "functions.sql has changed: if it was ever released, raise FUNCTIONS_VERSION"
        );
    }

    #[test]
    fn the_function_with_holders_differs_in_the_holder_alone() {
        let acquire = FUNCTIONS.split(SEPARATOR).next().expect("a function");
        for [from, _] in HELD {
            assert_eq!(acquire.matches(from).count(), 1, "{from}");
        }
        let held = held_template();
        let back = HELD
            .iter()
            .rev()
            .fold(held, |text, [from, to]| text.replacen(to, from, 1));
        assert_eq!(back, acquire);
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
