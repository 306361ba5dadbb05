//! Tests a gate of Postgres that another role made or changed, and what the least rights allow.

use crate::fence;
use crate::postgres::{Caller, Gated};
use crate::support::verbs::patient;
use syncguard::gate::postgres::{PASS, PostgresGate};
use syncguard::{Client, ErrorCode};

/// A role that may create in the schema and means harm, and one that writes; both named after the schema, in a server that the tests share.
struct Roles<'a> {
    gated: &'a Gated,
    admin: Caller,
    mallory: String,
    app: String,
}

impl<'a> Roles<'a> {
    fn new(gated: &'a Gated) -> Self {
        let schema = &gated.schema;
        let mut admin = gated.caller();
        let (mallory, app) = (format!("{schema}_mallory"), format!("{schema}_app"));
        for role in [&mallory, &app] {
            admin.run(&format!("CREATE ROLE {role} LOGIN"));
        }
        admin.run(&format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
        admin.run(&format!(
            "GRANT USAGE, CREATE ON SCHEMA {schema} TO {mallory}"
        ));
        Self {
            gated,
            admin,
            mallory,
            app,
        }
    }

    /// Every statement as that role.
    fn by(&mut self, role: &str, statements: &[&str]) {
        self.admin.run(&format!("SET ROLE {role}"));
        for sql in statements {
            assert_eq!(self.admin.run(sql), "00000", "{sql}");
        }
        self.admin.run("RESET ROLE");
    }

    fn grant(&mut self, what: &str) {
        let sql = format!("GRANT {what} TO {}", self.app);
        assert_eq!(self.admin.run(&sql), "00000", "{sql}");
    }

    fn app(&self) -> Client {
        let url = self.gated.server.url_of(&self.app);
        Client::open_with(&url, &patient().schema(&self.gated.schema)).expect("a good URL")
    }

    /// Set-up refuses, names the reason and says what to do.
    fn refused(&self, what: &str, reason: &str) {
        let error = self.gated.client.setup_fence_gate().expect_err(what);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{what}: {error}");
        assert!(error.message().contains(reason), "{what}: {error}");
        assert!(error.message().contains("setup_fence_gate()"), "{error}");
    }
}

impl Drop for Roles<'_> {
    fn drop(&mut self) {
        for role in [&self.mallory, &self.app] {
            self.admin.run(&format!("DROP OWNED BY {role} CASCADE"));
            self.admin.run(&format!("DROP ROLE {role}"));
        }
    }
}

#[test]
fn a_gate_that_an_untrusted_role_made_is_refused() {
    for (parts, name) in [(0..2, "table"), (0..1, "table"), (1..2, "function")] {
        let gated = Gated::without_gate();
        let mut roles = Roles::new(&gated);
        let gate = PostgresGate::new(&gated.schema).expect("a name");
        let mallory = roles.mallory.clone();
        // The function checks nothing of the table until it is called.
        roles.by(&mallory, &gate.setup()[parts]);
        roles.refused(name, &format!("{name} \"syncguard_"));
        roles.refused(name, &mallory);
        // What it tells to do works.
        for sql in [
            "DROP TABLE IF EXISTS syncguard_fence_gates",
            "DROP FUNCTION IF EXISTS syncguard_pass(text, int8)",
        ] {
            assert_eq!(roles.admin.run(sql), "00000");
        }
        gated.client.setup_fence_gate().expect("a gate");
    }
}

#[test]
fn a_table_that_runs_code_of_another_role_is_refused() {
    let gated = Gated::start();
    let mut roles = Roles::new(&gated);
    let mallory = roles.mallory.clone();
    roles.by(
        &mallory,
        &[
            "CREATE FUNCTION yes(text) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true'",
            "CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE FUNCTION one() RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8'",
        ],
    );
    let table = "syncguard_fence_gates";
    let code = format!("runs code of the role \"{mallory}\"");
    for (planted, undone, reason) in [
        (
            format!("ALTER TABLE {table} ADD CONSTRAINT c CHECK (yes(resource))"),
            format!("ALTER TABLE {table} DROP CONSTRAINT c"),
            code.as_str(),
        ),
        (
            format!("CREATE INDEX planted ON {table} ((yes(resource)))"),
            "DROP INDEX planted".to_owned(),
            &code,
        ),
        (
            format!("CREATE INDEX planted ON {table} (fence) WHERE yes(resource)"),
            "DROP INDEX planted".to_owned(),
            &code,
        ),
        (
            format!(
                "CREATE TRIGGER t BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION fire()"
            ),
            format!("DROP TRIGGER t ON {table}"),
            "without triggers",
        ),
        (
            format!("ALTER TABLE {table} ALTER fence SET DEFAULT one()"),
            format!("ALTER TABLE {table} ALTER fence DROP DEFAULT"),
            "has other columns",
        ),
    ] {
        assert_eq!(roles.admin.run(&planted), "00000", "{planted}");
        roles.refused(&planted, reason);
        assert_eq!(roles.admin.run(&undone), "00000", "{undone}");
        gated.client.setup_fence_gate().expect("as before");
    }
    // Code of our own may stay.
    let own = format!("ALTER TABLE {table} ADD CONSTRAINT c CHECK (fence > 0)");
    assert_eq!(roles.admin.run(&own), "00000");
    gated.client.setup_fence_gate().expect("our own code");
}

/// `syncguard_pass('account:7', 34)` takes 34 for an `int4`: a function with that parameter would be called first.
#[test]
fn another_function_of_the_gates_name_is_refused_and_a_cast_does_not_reach_it() {
    let gated = Gated::start();
    let mut roles = Roles::new(&gated);
    let mallory = roles.mallory.clone();
    let number = |values: &str| values.replace("$1", "'account:7'").replace("$2", "33");
    assert_eq!(
        roles.admin.run("SELECT syncguard_pass('account:7', 34)"),
        "00000"
    );
    for parameters in [
        "text, int4",
        "text, int8, int4 DEFAULT 0",
        "text, VARIADIC int8[]",
    ] {
        let planted = format!(
            "CREATE FUNCTION syncguard_pass({parameters}) RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8'"
        );
        roles.by(&mallory, &[&planted]);
        roles.refused(parameters, "another function");
        let gate = PostgresGate::new(&gated.schema).expect("a name");
        for pass in [PASS, gate.pass()] {
            // Postgres may say that it cannot choose; it must not choose the planted one.
            let said = roles.admin.run(&number(pass));
            assert!(said == "SGG01" || said == "42725", "{parameters}: {said}");
        }
        let types = parameters.replace(" DEFAULT 0", "");
        assert_eq!(
            roles
                .admin
                .run(&format!("DROP FUNCTION syncguard_pass({types})")),
            "00000"
        );
    }
    gated.client.setup_fence_gate().expect("as before");
}

#[test]
fn the_least_rights_are_enough_and_let_a_role_set_its_gate_back() {
    let gated = Gated::start();
    let mut roles = Roles::new(&gated);
    let (schema, app) = (gated.schema.clone(), roles.app.clone());
    let table = format!("{schema}.syncguard_fence_gates");
    let function = format!("FUNCTION {schema}.syncguard_pass(text, int8)");
    roles
        .admin
        .run(&format!("REVOKE EXECUTE ON {function} FROM PUBLIC"));
    let client = roles.app();
    let pass = |roles: &mut Roles<'_>, n: u64| {
        roles.admin.run(&format!("SET ROLE {app}"));
        let said = roles
            .admin
            .run(&format!("SELECT {schema}.syncguard_pass('r', {n})"));
        roles.admin.run("RESET ROLE");
        said
    };
    for needed in [
        format!("USAGE ON SCHEMA {schema}"),
        format!("EXECUTE ON {function}"),
        format!("SELECT ON {table}"),
        format!("UPDATE ON {table}"),
        format!("INSERT ON {table}"),
    ] {
        assert_eq!(pass(&mut roles, 34), "42501", "before {needed}");
        roles.grant(&needed);
    }
    assert_eq!(pass(&mut roles, 34), "00000");
    assert_eq!(pass(&mut roles, 33), "SGG01");
    assert_eq!(client.newest_fence("r").expect("a look"), Some(fence(34)));
    let error = client.reset_fence_gate("r", fence(34)).expect_err("DELETE");
    assert_eq!(error.code(), ErrorCode::AuthFailed);
    assert!(error.message().contains("docs/postgres.md"), "{error}");
    roles.grant(&format!("DELETE ON {table}"));
    assert!(client.reset_fence_gate("r", fence(34)).expect("an answer"));
    // A gate is for holders that are late, not for a role that lies.
    assert_eq!(pass(&mut roles, 34), "00000");
    roles.by(&app, &[&format!("UPDATE {table} SET fence = 1")]);
    assert_eq!(pass(&mut roles, 2), "00000");
    // It may call set-up, which has nothing to do.
    client.setup_fence_gate().expect("all is there");
}

#[test]
fn a_hostile_search_path_and_a_temporary_table_do_not_change_the_gate() {
    let gated = Gated::start();
    let mut roles = Roles::new(&gated);
    let (schema, mallory) = (gated.schema.clone(), roles.mallory.clone());
    assert_eq!(roles.admin.run("SELECT syncguard_pass('r', 34)"), "00000");
    roles.by(
        &mallory,
        &[
            "CREATE FUNCTION never(int8, int8) RETURNS bool LANGUAGE sql AS 'SELECT false'",
            "CREATE OPERATOR > (LEFTARG = int8, RIGHTARG = int8, FUNCTION = never)",
            "CREATE FUNCTION octet_length(text) RETURNS int4 LANGUAGE sql AS 'SELECT 1'",
            "CREATE DOMAIN int8 AS pg_catalog.int8",
        ],
    );
    let mut caller = gated.caller();
    for sql in [
        "CREATE TEMP TABLE syncguard_fence_gates (resource text PRIMARY KEY, fence bigint NOT NULL)",
        "INSERT INTO pg_temp.syncguard_fence_gates VALUES ('r', 1)",
        &format!("SET search_path = pg_temp, {schema}, pg_catalog"),
    ] {
        assert_eq!(caller.run(sql), "00000", "{sql}");
    }
    let number = |n: i64| PASS.replace("$1", "'r'").replace("$2", &n.to_string());
    assert_eq!(caller.run(&number(33)), "SGG01");
    assert_eq!(caller.run(&number(35)), "00000");
    assert_eq!(
        gated.client.newest_fence("r").expect("a look"),
        Some(fence(35))
    );
    let temporary = caller.rows("SELECT fence FROM pg_temp.syncguard_fence_gates");
    assert_eq!(temporary, ["1"]);
}
