//! Tests tables and functions of other owners under our names, and names that look like SQL.

use std::time::Duration;

use crate::support::postgres::{Bouncer, Disguise, Server, id, key, set_up, ttl};
use syncguard::*;

fn open(server: &Server, role: &str, schema: &str) -> PostgresBackend {
    let options = ClientOptions::new()
        .schema(schema)
        .operation_timeout(Duration::from_secs(60));
    PostgresBackend::open(&server.url_of(role), &options).expect("a store")
}

/// Lets the role use tables and functions that others own.
fn grant(server: &Server, schema: &str, role: &str) {
    server.sql(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}"
    ));
}

/// A server with a role that locks, one that sets up, and one that means harm and may create in `mal`.
fn server() -> Server {
    let server = Server::start(&[]);
    server.sql(
        "CREATE ROLE app LOGIN; CREATE ROLE migrator LOGIN; CREATE ROLE mallory LOGIN; \
         CREATE SCHEMA mal AUTHORIZATION mallory; GRANT USAGE ON SCHEMA mal TO PUBLIC; SET ROLE mallory; \
         CREATE FUNCTION mal.yes(text) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true'; \
         CREATE FUNCTION mal.same(text, text) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true'; \
         CREATE FUNCTION mal.word() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$; \
         CREATE OPERATOR mal.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = mal.same); \
         CREATE DOMAIN mal.word AS text CHECK (mal.yes(VALUE)); \
         CREATE FUNCTION mal.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    );
    server
}

/// Takes, extends, reads and releases a lock.
fn cycle(store: &PostgresBackend, name: &str) -> Result<(), LockError> {
    let (name, mine) = (key(name), id());
    let outcome = store.acquire(&name, &mine, ttl(60_000), &Call::new())?;
    assert!(
        matches!(outcome, AcquireOutcome::Acquired(_)),
        "{outcome:?}"
    );
    let second = store.acquire(&name, &id(), ttl(60_000), &Call::new())?;
    assert!(matches!(second, AcquireOutcome::Locked(_)), "{second:?}");
    let outcome = store.extend(&mine, ttl(60_000), &Call::new())?;
    assert!(matches!(outcome, ExtendOutcome::Extended(_)), "{outcome:?}");
    assert!(store.is_locked(&name, &Call::new())?);
    assert!(store.release(&mine, &Call::new())?.is_released());
    Ok(())
}

/// Both `check` and `setup_schema` refuse, as any role, and name the reason.
fn refused(server: &Server, schema: &str, what: &str, reason: &str) {
    for role in ["postgres", "app"] {
        let store = open(server, role, schema);
        for result in [
            store.check(&Call::new()).map(drop),
            store.setup_schema(&Call::new()),
        ] {
            let error = result.expect_err(what);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{what}: {error}");
            assert!(error.message().contains(reason), "{what}: {error}");
        }
    }
}

const ACQUIRE: &str = "syncguard_v1_acquire(text, text, text, text, int8, int8, int8, int8, int8)";

/// An overload that has our body must not hide a function that has our signature.
#[test]
fn an_impostor_does_not_hide_behind_an_overload() {
    let server = server();
    set_up(&server, "s");
    server.sql(
        "SET check_function_bodies = off; DO $do$ DECLARE body text; BEGIN \
           SELECT prosrc INTO body FROM pg_proc WHERE proname = 'syncguard_v1_acquire'; \
           DROP FUNCTION s.syncguard_v1_acquire; \
           EXECUTE format('CREATE FUNCTION s.syncguard_v1_acquire(varchar) RETURNS text LANGUAGE plpgsql AS %L', body); \
         END $do$; \
         CREATE FUNCTION s.syncguard_v1_acquire(p_key text, p_fence_key text, p_user_key text, p_lock_id text, p_ttl_ms int8, \
           p_tolerance_ms int8, p_max_fence int8, p_max_clock_ms int8, p_not_after_ms int8, OUT o_granted bool, OUT o_lock_id text, OUT o_fence text, \
           OUT o_expires_at_ms int8, OUT o_now_ms int8, OUT o_late_ms int8) LANGUAGE plpgsql AS $$ BEGIN o_granted := true; o_lock_id := p_lock_id; \
           o_fence := '000000000000001'; o_expires_at_ms := 99999999999999; o_now_ms := 1; END $$; \
         ALTER FUNCTION s.syncguard_v1_acquire(text, text, text, text, int8, int8, int8, int8, int8) OWNER TO mallory; \
         ALTER FUNCTION s.syncguard_v1_acquire(varchar) OWNER TO mallory",
    );
    grant(&server, "s", "app");
    refused(
        &server,
        "s",
        "an impostor",
        "belongs to the role \"mallory\"",
    );
    // In the right hands it is only a function that has changed, and set-up mends it; the overload does no harm.
    server.sql(&format!("ALTER FUNCTION s.{ACQUIRE} OWNER TO postgres"));
    let store = open(&server, "postgres", "s");
    let error = store.check(&Call::new()).expect_err("another body");
    assert!(error.message().contains("not the one"), "{error}");
    store.setup_schema(&Call::new()).expect("mended");
    store.check(&Call::new()).expect("right again");
    cycle(&store, "k").expect("a lock");
}

#[test]
fn a_function_is_known_by_everything_that_decides_what_it_does() {
    let server = server();
    let store = set_up(&server, "s");
    grant(&server, "s", "app");
    let same = "p_lock_id text, p_tolerance_ms int8";
    for (what, change) in [
        (
            "rights",
            format!("ALTER FUNCTION s.{ACQUIRE} SECURITY DEFINER"),
        ),
        (
            "settings",
            format!("ALTER FUNCTION s.{ACQUIRE} SET search_path = mal"),
        ),
        ("volatility", format!("ALTER FUNCTION s.{ACQUIRE} STABLE")),
        ("strictness", format!("ALTER FUNCTION s.{ACQUIRE} STRICT")),
        (
            "language",
            format!(
                "CREATE OR REPLACE FUNCTION s.syncguard_v1_release({same}, OUT o_found bool, OUT o_released bool) \
                 LANGUAGE sql AS 'SELECT true, true'"
            ),
        ),
    ] {
        server.sql(&change);
        for role in ["postgres", "app"] {
            let error = open(&server, role, "s")
                .check(&Call::new())
                .expect_err(what);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{what}: {error}");
            assert!(error.message().contains("not the one"), "{what}: {error}");
        }
        store.setup_schema(&Call::new()).expect(what);
        open(&server, "app", "s").check(&Call::new()).expect(what);
    }
    // What cannot be replaced is named.
    for (what, outputs) in [
        ("output names", "OUT o_found bool, OUT o_gone bool"),
        ("output types", "OUT o_found bool, OUT o_released int4"),
        ("one output", "OUT o_found bool"),
    ] {
        server.sql(&format!(
            "SET check_function_bodies = off; \
             DO $do$ DECLARE body text; BEGIN SELECT prosrc INTO body FROM pg_proc WHERE proname = 'syncguard_v1_release'; \
             DROP FUNCTION s.syncguard_v1_release(text, int8); \
             EXECUTE format('CREATE FUNCTION s.syncguard_v1_release({same}, {outputs}) LANGUAGE plpgsql AS %L', body); END $do$"
        ));
        let error = store.check(&Call::new()).expect_err(what);
        assert!(error.message().contains("not the one"), "{what}: {error}");
        let error = store.setup_schema(&Call::new()).expect_err(what);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{what}: {error}");
    }
    server.sql("DROP FUNCTION s.syncguard_v1_release(text, int8)");
    store.setup_schema(&Call::new()).expect("set-up");
    cycle(&store, "k").expect("a lock");
}

/// Whatever else has the same name, the verbs reach the functions that were checked.
#[test]
fn overloads_are_never_called() {
    let server = server();
    let store = set_up(&server, "s");
    grant(&server, "s", "app");
    let overload = |verb: &str, inputs: &str| {
        server.sql(&format!(
            "CREATE FUNCTION s.syncguard_v1_{verb}({inputs}) RETURNS record LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'an overload was called'; END $$; \
             ALTER FUNCTION s.syncguard_v1_{verb}({}) OWNER TO mallory",
            inputs.replace(" DEFAULT 1", "")
        ));
    };
    for (verb, inputs) in [
        (
            "acquire",
            "varchar, varchar, varchar, varchar, int4, int4, int4, int4, int4",
        ),
        (
            "acquire",
            "name, name, name, name, numeric, numeric, numeric, numeric, numeric",
        ),
        (
            "acquire",
            "text, text, text, text, anyelement, anyelement, anyelement, anyelement, anyelement",
        ),
        ("extend", "varchar, int4, int4, int4"),
        ("extend", "anyelement, int8, int8, int8"),
        ("release", "varchar, int4"),
        ("release", "text, anyelement"),
        ("release", "text, int8, int8"),
    ] {
        overload(verb, inputs);
    }
    let pooler = Disguise::start(&server);
    let options = ClientOptions::new().schema("s");
    let urls = [server.url_of("app"), pooler.url_of("app")];
    for url in &urls {
        let app = PostgresBackend::open(url, &options).expect("a store");
        app.check(&Call::new()).expect("ours are as they were");
        cycle(&app, "k").expect("a lock");
    }
    store.setup_schema(&Call::new()).expect("nothing to do");
    // Several with defaults make a call ambiguous: it fails, and the check says why.
    overload(
        "acquire_held",
        "text, text, text, text, int8, int8, int8, int8, text, int8, int8 DEFAULT 1",
    );
    overload(
        "acquire_held",
        "text, text, text, text, int8, int8, int8, int8, text, VARIADIC int8[]",
    );
    refused(
        &server,
        "s",
        "an ambiguous call",
        "another function \"syncguard_v1_acquire_held\"",
    );
    for url in &urls {
        let app = PostgresBackend::open(url, &options).expect("a store");
        let outcome = app.acquire(&key("k"), &id(), ttl(60_000), &Call::new());
        let error = outcome.expect_err("which one?");
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(!error.message().contains("was called"), "{error}");
    }
}

#[test]
fn tables_that_run_other_peoples_code_are_refused() {
    let server = server();
    let locks = "syncguard_locks";
    let code = "runs code of the role \"mallory\"";
    for (n, (change, reason)) in [
        (format!("ALTER TABLE {locks} OWNER TO mallory"), "belongs to the role \"mallory\""),
        (
            "ALTER TABLE syncguard_fence_counters OWNER TO mallory".to_owned(),
            "belongs to the role \"mallory\"",
        ),
        (
            format!("ALTER TABLE {locks} OWNER TO mallory; ALTER TABLE syncguard_fence_counters OWNER TO mallory"),
            "belongs to the role \"mallory\"",
        ),
        (format!("ALTER TABLE {locks} FORCE ROW LEVEL SECURITY"), "row-level security"),
        (
            format!("CREATE TABLE mal.child (key text REFERENCES {locks} (key) ON DELETE CASCADE)"),
            "foreign keys",
        ),
        (
            format!("CREATE TRIGGER t AFTER INSERT ON {locks} FOR EACH ROW EXECUTE FUNCTION mal.t()"),
            "triggers",
        ),
        (format!("CREATE RULE r AS ON UPDATE TO {locks} DO ALSO SELECT 1"), "rules"),
        (format!("ALTER TABLE {locks} ADD CHECK (mal.yes(key))"), code),
        (format!("ALTER TABLE {locks} ADD CHECK (key OPERATOR(mal.===) 'x')"), code),
        (format!("ALTER TABLE {locks} ADD COLUMN note text DEFAULT mal.word()"), code),
        (
            format!("ALTER TABLE {locks} ADD COLUMN note bool GENERATED ALWAYS AS (mal.yes(key)) STORED"),
            code,
        ),
        (format!("ALTER TABLE {locks} ADD COLUMN note mal.word"), code),
        (format!("CREATE INDEX ON {locks} (mal.yes(key))"), code),
        (format!("CREATE INDEX ON {locks} (key) WHERE mal.yes(key)"), code),
        (
            "ALTER TABLE syncguard_fence_counters ALTER COLUMN key_debug SET DEFAULT mal.word()".to_owned(),
            code,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = format!("t{n}");
        set_up(&server, &schema);
        grant(&server, &schema, "app");
        open(&server, "app", &schema).check(&Call::new()).expect("all is well");
        server.sql(&format!("SET search_path = {schema}; {change}"));
        refused(&server, &schema, &change, reason);
    }
    // What the owner adds for itself is its own business.
    set_up(&server, "own");
    server.sql(
        "SET search_path = own; CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS 'SELECT current_user::text'; \
         ALTER TABLE syncguard_locks ADD COLUMN tenant text DEFAULT tenant() CHECK (tenant <> ''); \
         CREATE INDEX ON syncguard_locks (lower(tenant))",
    );
    grant(&server, "own", "app");
    let app = open(&server, "app", "own");
    app.check(&Call::new()).expect("its own");
    app.setup_schema(&Call::new()).expect("its own");
    cycle(&app, "k").expect("a lock");
}

/// The usual division: one role makes the tables and functions, another uses them.
#[test]
fn one_role_may_set_up_for_another() {
    let server = server();
    server.sql(
        "CREATE SCHEMA theirs AUTHORIZATION migrator; \
         CREATE SCHEMA shared; GRANT CREATE, USAGE ON SCHEMA shared TO migrator, mallory",
    );
    for (schema, told) in [("theirs", false), ("shared", true)] {
        let migrator = open(&server, "migrator", schema);
        migrator.setup_schema(&Call::new()).expect("set-up");
        migrator.check(&Call::new()).expect("set up");
        grant(&server, schema, "app");
        for role in ["app", "postgres"] {
            let store = open(&server, role, schema);
            let warnings = store.check(&Call::new()).expect("set up");
            let about = warnings.iter().any(|w| w.contains("\"migrator\" owns"));
            assert_eq!(about, told, "{schema}: {warnings:?}");
            store.setup_schema(&Call::new()).expect("nothing to do");
            cycle(&store, "k").expect("a lock");
        }
        // A third role's function among them is refused.
        server.sql(&format!(
            "ALTER FUNCTION {schema}.{ACQUIRE} OWNER TO mallory"
        ));
        refused(&server, schema, schema, "belongs to the role \"mallory\"");
        server.sql(&format!(
            "ALTER FUNCTION {schema}.{ACQUIRE} OWNER TO migrator"
        ));
        open(&server, "app", schema)
            .check(&Call::new())
            .expect("as before");
    }
    // Tables that another role made first, where it may create, are not used.
    server.sql("CREATE SCHEMA open_to_all; GRANT ALL ON SCHEMA open_to_all TO PUBLIC");
    let sql = PostgresBackend::schema_sql(&ClientOptions::new().schema("open_to_all"));
    let sql = sql
        .expect("legal names")
        .replace("BEGIN;\n", "BEGIN; SET LOCAL ROLE mallory;\n");
    server.sql(&sql.replace("CREATE SCHEMA IF NOT EXISTS", "-- CREATE SCHEMA"));
    server.sql("DROP FUNCTION open_to_all.syncguard_v1_acquire; GRANT ALL ON ALL TABLES IN SCHEMA open_to_all TO PUBLIC");
    let error = open(&server, "migrator", "open_to_all").setup_schema(&Call::new());
    let error = error.expect_err("another role's tables");
    assert!(
        error.message().contains("belongs to the role \"mallory\""),
        "{error}"
    );
}

/// A session that comes from a pooler may have temporary tables with the names of catalogs.
#[test]
fn temporary_tables_do_not_stand_in_for_catalogs() {
    let server = server();
    set_up(&server, "s");
    server.sql(&format!("ALTER FUNCTION s.{ACQUIRE} OWNER TO mallory"));
    let bouncer = Bouncer::start(&server, 1);
    let mut psql = std::process::Command::new("psql");
    let lies = "CREATE TEMP TABLE pg_proc AS SELECT * FROM pg_catalog.pg_proc WHERE false; \
                CREATE TEMP TABLE pg_roles AS SELECT oid, rolname, true AS rolsuper FROM pg_catalog.pg_roles";
    psql.args(["-X", "-q", "-c", lies, &bouncer.url()]);
    assert!(psql.status().expect("psql").success());
    let store = PostgresBackend::open(&bouncer.url(), &ClientOptions::new().schema("s"));
    let error = store
        .expect("a store")
        .check(&Call::new())
        .expect_err("an impostor");
    assert!(
        error.message().contains("belongs to the role \"mallory\""),
        "{error}"
    );
}

/// A schema that the search_path names may have any name.
#[test]
fn no_name_of_a_schema_ends_a_quotation() {
    let server = server();
    for (n, schema) in [
        "a$syncguard$b",
        "$syncguard$",
        "$syncguard1$ $syncguard$",
        "$$",
        "@FENCES@",
        "@ACQUIRE@(",
        "quote\"quote",
        "quote'quote",
        "back\\slash",
        "new\nline -- comment",
        "semi;colon",
        "/* comment",
        "%s %L %I",
        "$1",
        "ünïcode",
    ]
    .into_iter()
    .enumerate()
    {
        let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
        server.sql(&format!(
            "CREATE SCHEMA {quoted}; CREATE ROLE odd{n} LOGIN SUPERUSER; ALTER ROLE odd{n} SET search_path = {quoted}"
        ));
        let options = ClientOptions::new().operation_timeout(Duration::from_secs(60));
        let url = server.url_of(&format!("odd{n}"));
        let store = PostgresBackend::open(&url, &options).expect("a store");
        store
            .setup_schema(&Call::new())
            .unwrap_or_else(|e| panic!("{schema}: {e}"));
        store
            .check(&Call::new())
            .unwrap_or_else(|e| panic!("{schema}: {e}"));
        cycle(&store, "k").unwrap_or_else(|e| panic!("{schema}: {e}"));
        assert_eq!(
            server.sql(&format!(
                "SELECT count(*) FROM {quoted}.syncguard_fence_counters"
            )),
            "1"
        );
    }
}
