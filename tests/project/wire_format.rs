//! Compares docs/wire-format.md with what the library sends and stores, as `syncguard::format` gives it.

use syncguard::format::{KeySpace, VERSION, postgres, redis, sqlite};
use syncguard::{
    Fence, HolderText, Key, LockId, MAX_FENCE, MAX_KEY_BYTES, TIME_TOLERANCE_MS, is_live,
};

const PAGE: &str = include_str!("../../docs/wire-format.md");
const NEWEST_FENCE: &str = include_str!("../../src/stores/redis/lua/newest_fence.lua");
const RESET_GATE: &str = include_str!("../../src/stores/redis/lua/reset_gate.lua");
const CORE: &str = include_str!("../../src/waiting/core.rs");
const FENCE: &str = include_str!("../../src/types/fence.rs");

/// The cells of the row of a table that begins with `first`.
fn row(first: &str) -> Vec<&'static str> {
    let start = format!("| {first} |");
    let line = PAGE.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no row {first}"));
    line.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// The page says this, whatever its line breaks are.
#[track_caller]
fn says(text: &str) {
    let page: Vec<_> = PAGE.split_whitespace().collect();
    assert!(
        page.join(" ").contains(text),
        "the page does not say: {text}"
    );
}

/// How many of `KEYS` or `ARGV` a script uses.
fn used(script: &str, table: &str) -> usize {
    let start = format!("{table}[");
    let uses = script.split(start.as_str()).skip(1);
    uses.filter_map(|rest| rest.split(']').next()?.parse().ok())
        .max()
        .unwrap_or(0)
}

fn id() -> LockId {
    LockId::parse("W647iISzFHXC1Nia_Mdz2Q").expect("an id")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

#[test]
fn the_version_is_the_pages() {
    says(&format!(
        "This is version {VERSION} of the format (`syncguard::format::VERSION`)."
    ));
}

#[test]
fn every_script_has_the_keys_and_arguments_of_its_row() {
    let scripts = [
        ("acquire", redis::ACQUIRE),
        ("release", redis::RELEASE),
        ("extend", redis::EXTEND),
        ("is locked", redis::IS_LOCKED),
        ("find by key", redis::FIND_BY_KEY),
        ("find by id", redis::FIND_BY_ID),
    ];
    for (name, text) in scripts {
        let [_, keys, arguments, answer] = row(name)[..] else {
            panic!("{name} has another number of cells");
        };
        assert_eq!(keys.split(", ").count(), used(text, "KEYS"), "{name}");
        assert_eq!(arguments.split(", ").count(), used(text, "ARGV"), "{name}");
        // The script's own first lines name the same arguments, but for not-after, which they explain.
        let stated: Vec<_> = arguments
            .split(", ")
            .filter(|a| *a != "not-after")
            .collect();
        let comment = text.split("-- KEYS: ").nth(1).expect("its keys").to_owned();
        let comment = comment.replace("the value", "value");
        for word in keys.split(", ").chain(stated) {
            assert!(comment.contains(word), "{name}: {word}");
        }
        for code in ["{-3, now}", "-1", "-2"] {
            let answers = answer.contains(code) || answer.contains("as release");
            let sends =
                text.contains(&format!("return {code}")) || text.contains(&format!("or {code}"));
            assert!(!sends || answers, "{name} answers {code}: {answer}");
            assert!(
                sends || !answer.contains(code),
                "{name} does not answer {code}: {answer}"
            );
        }
    }
}

#[test]
fn the_stored_value_is_the_one_shown() {
    let shown = PAGE.split("```json\n").nth(1).expect("two values");
    let mut lines = shown.lines();
    let mut line = || lines.next().expect("a line");
    let (held, shown) = (line(), line());
    let lock = redis::decode(held.as_bytes()).expect("a lock");
    assert_eq!(redis::encode(&lock), held);
    let text = lock.holder.expect("a text of the holder");
    let head = redis::value_head_of(
        &key("resource:123"),
        &id(),
        &HolderText::new(text.as_str()).expect("a text"),
    );
    assert_eq!(held[..head.len()], head);
    let lock = redis::decode(shown.as_bytes()).expect("a lock");
    assert_eq!(lock.holder, None);
    assert_eq!(redis::encode(&lock), shown);
    assert_eq!((lock.key.as_str(), lock.lock_id), ("resource:123", id()));
    // The script writes the same fields in the same order.
    assert_eq!(
        redis::value_head(&key("resource:123"), &id()),
        shown[..shown.find("000000000000001").expect("the fence")]
    );
    assert!(redis::ACQUIRE.contains(
        r#"ARGV[5] .. fence .. '","acquiredAtMs":' .. now .. ',"expiresAtMs":' .. expires .. '}'"#
    ));
    let escapes = "`\\\"`, `\\\\`, `\\/`, `\\b`, `\\t`, `\\n`, `\\f`, `\\r`";
    says(escapes);
    says("by default `host/pid/program`");
    let head = redis::value_head(&key("\"\\/\u{8}\t\n\u{c}\r\u{1f}\u{7f}é"), &id());
    let escaped = escapes.replace(['`', ',', ' '], "") + "\\u001f\\u007fé";
    assert!(head.contains(&escaped), "{head}");
}

#[test]
fn the_names_are_those_shown() {
    let names = KeySpace::redis("P").expect("a prefix");
    let lock = names.lock(&key("K")).expect("a name");
    assert_eq!(row("`P:K`")[0], format!("`{lock}`"));
    let index = names.index(&id()).expect("a name");
    row(&format!("`{}`", index.replace(id().as_str(), "<lock id>")));
    row(&format!("`{}`", names.fence(&lock).expect("a name")));
    let bare = KeySpace::redis("").expect("no prefix");
    assert_eq!(bare.lock(&key("K")).expect("a name"), "K");
    says(&format!(
        "`K`, `id:<lock id>` and `{}`",
        bare.fence("K").expect("a name")
    ));
    assert_eq!(KeySpace::redis("P::").expect("a prefix").prefix(), "P");
    says("trailing colons do not count; default `syncguard`");
    assert_eq!(syncguard::DEFAULT_KEY_PREFIX, "syncguard");
    says(&format!("(`{lock}{}`)", redis::CHANNEL_SUFFIX));
    assert!(redis::RELEASE.contains(&format!("key .. '{}'", redis::CHANNEL_SUFFIX)));
    // The longest name that is not hashed, and the next one.
    says("longer than 974 bytes (1000 less 26 in reserve)");
    says("`P:` and 22 characters");
    let prefix = "p".repeat(900);
    let long = KeySpace::redis(&prefix).expect("a prefix");
    let whole = long.lock(&key(&"k".repeat(974 - 901))).expect("a name");
    assert_eq!(whole.len(), 974);
    let hashed = long.lock(&key(&"k".repeat(974 - 900))).expect("a name");
    assert_eq!(hashed.len(), 901 + 22);
    for reserved in ["fence:P:x".to_owned(), format!("id:{}", id().as_str())] {
        assert!(names.lock(&key(&reserved)).is_err(), "{reserved}");
    }
}

#[test]
fn the_numbers_are_those_of_the_library() {
    says(&format!("`expiresAtMs > now - {TIME_TOLERANCE_MS}`"));
    says(&format!("`expires_at_ms > now - {TIME_TOLERANCE_MS}`"));
    assert!(is_live(1001, 2000) && !is_live(1000, 2000));
    says(&format!(
        "must be `0` to `{}` before an acquire",
        MAX_FENCE - 1
    ));
    let last = i64::try_from(MAX_FENCE).expect("a number") - 1;
    assert!(Fence::after(last).is_ok() && Fence::after(last + 1).is_err());
    assert_eq!(redis::MAX_VALUE_BYTES, 64 * 1024);
    says("longer than 64 KiB");
    assert!(redis::ACQUIRE.contains(&format!("#value > {}", redis::MAX_VALUE_BYTES)));
    says(&format!("A time of `{}` (1e14,", redis::TIME_LIMIT_MS));
    assert_eq!(redis::TIME_LIMIT_MS, 10i64.pow(14));
    assert!(redis::ACQUIRE.contains("lock.expiresAtMs < 1e14"));
    says(&format!("at most {MAX_KEY_BYTES} bytes"));
}

#[test]
fn the_listing_has_the_arguments_of_its_row() {
    let [_, keys, arguments, answer] = row("list")[..] else {
        panic!("list has another number of cells");
    };
    // The name only says to which slot of a cluster the request goes.
    assert_eq!((keys, used(redis::LIST, "KEYS")), ("a name in the slot", 0));
    let arguments: Vec<&str> = arguments.split(", ").collect();
    assert_eq!(arguments.len(), used(redis::LIST, "ARGV"), "{arguments:?}");
    for (n, argument) in arguments.iter().enumerate() {
        let use_of_it = match *argument {
            "where to go on" => "local found = {ARGV[1], server}",
            "pattern" => "'MATCH', ARGV[2]",
            "how many to examine" => "left, bytes = tonumber(ARGV[3])",
            "tolerance ms" => "read(value, ARGV[4])",
            "beginning of the key" => "begins(lock.key, ARGV[5])",
            "beginning of index names" => "begins(name, ARGV[6])",
            "beginning of fence names" => "begins(name, ARGV[7])",
            "server" => "ARGV[8] ~= server",
            other => panic!("the script has no argument {other}"),
        };
        assert!(
            use_of_it.contains(&format!("ARGV[{}]", n + 1)),
            "{argument} is not number {n}"
        );
        assert!(redis::LIST.contains(use_of_it), "{argument}");
    }
    assert!(answer.contains("`{where to go on, server, value…}`"));
    assert!(redis::LIST.contains("found[1], left = page[1]"));
}

#[test]
fn a_lock_with_a_holder_has_the_field_where_the_page_says() {
    says(
        "The field `holder` is what the holder says of itself: at most 200 bytes of printable UTF-8",
    );
    assert_eq!(syncguard::MAX_HOLDER_BYTES, 200);
    let text = HolderText::new("build-7").expect("a text");
    let head = redis::value_head_of(&key("k"), &id(), &text);
    let (holder, lock_id) = (head.find(r#""holder":"build-7""#), head.find(r#""lockId""#));
    assert!(holder.expect("it is there") < lock_id.expect("it is there"));
    let bare = redis::value_head_of(&key("k"), &id(), &HolderText::new("").expect("a text"));
    assert_eq!(bare, redis::value_head(&key("k"), &id()));
    // It is read wherever it stands, and not where it could not have been written.
    let value = format!("{head}000000000000001\",\"acquiredAtMs\":1,\"expiresAtMs\":2}}");
    let lock = redis::decode(value.as_bytes()).expect("a lock");
    assert_eq!(lock.holder.as_deref(), Some("build-7"));
    assert_eq!(redis::encode(&lock), value);
    let long = value.replace("build-7", &"x".repeat(201));
    assert_eq!(redis::decode(long.as_bytes()).expect("a lock").holder, None);
}

#[test]
fn fences_by_the_clock_are_as_shown() {
    for cell in &row("acquire by clock")[1..] {
        assert_eq!(*cell, "as acquire");
    }
    let counted = redis::ACQUIRE.split("local max_clock_ms = nil\n");
    let by_clock = redis::ACQUIRE_BY_CLOCK.split("local max_clock_ms = 5000000000000\n");
    assert_eq!(counted.collect::<Vec<_>>(), by_clock.collect::<Vec<_>>());
    says("A time over `5000000000000` is an error and nothing is written.");
    let last = 5_000_000_000_000;
    let fence = |now| Fence::after_by_clock(0, now).map(Fence::get);
    assert_eq!(fence(last).expect("a fence"), last.unsigned_abs());
    assert!(fence(last + 1).is_err());
    // The smallest fence that a client without it takes for one of a clock: no lock has been granted a million million times.
    says(
        "So a counter of `1000000000000` or more means that a client of the key has `fences=clock`",
    );
    assert!(CORE.contains("fence.get() >= CLOCK_FENCES_FROM"));
    assert!(FENCE.contains("const CLOCK_FENCES_FROM: u64 = 1_000_000_000_000;"));
}

#[test]
fn the_gates_are_those_shown() {
    use syncguard::gate::{MAX_RESOURCE_BYTES, postgres, redis as gate, sqlite};
    says(&format!("is the key `{}`", gate::gate_key("K")));
    says(&format!("A fence is `1` to `{MAX_FENCE}`."));
    says(&format!("`K` has 1 to {MAX_RESOURCE_BYTES} bytes."));
    assert_eq!(row("fenced set")[1..3], ["gate, name", "fence, value"]);
    // The gate takes its key and its argument from the front; the rest finds its own.
    let (prelude, rest) = gate::FENCED_SET.split_at(gate::PRELUDE.len());
    assert_eq!(prelude, gate::PRELUDE);
    assert_eq!((used(rest, "KEYS"), used(rest, "ARGV")), (1, 1));
    for (name, text, keys, arguments) in [
        ("newest fence", NEWEST_FENCE, 1, 0),
        ("reset gate", RESET_GATE, 1, 1),
    ] {
        let cells = row(name);
        assert_eq!(cells[1].split(", ").count(), keys, "{name}");
        assert_eq!(cells[2] != "–", arguments > 0, "{name}");
        assert_eq!((used(text, "KEYS"), used(text, "ARGV")), (keys, arguments));
    }
    assert!(row("fenced set")[3].contains(gate::STALE));
    let rows = |store: &str| gate_columns(store);
    let of_postgres = postgres::PostgresGate::new("public").expect("a schema");
    let names = [("text", "TEXT"), ("bigint", "BIGINT")];
    let created: Vec<_> = created_in(of_postgres.setup()[0])
        .into_iter()
        .map(|(column, kind)| {
            let kind = kind.rsplit('.').next().unwrap_or(kind).to_lowercase();
            let kind = if kind == "int8" {
                "bigint"
            } else {
                kind.as_str()
            };
            let name = names.iter().find(|(sql, _)| *sql == kind);
            (column.to_owned(), name.expect("a type").1.to_owned())
        })
        .collect();
    assert_eq!(rows("Postgres"), created);
    let setup = sqlite::SETUP;
    let created = created_in(setup.split("----").next().expect("the table"));
    let created: Vec<_> = created
        .into_iter()
        .map(|(column, kind)| (column.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(rows("SQLite"), created);
    for name in [
        postgres::GATE_TABLE,
        postgres::STALE,
        postgres::NO_FENCE,
        sqlite::STALE,
    ] {
        says(&format!("`{name}`"));
    }
    says(&format!("`{}(resource, fence)`", postgres::GATE_FUNCTION));
}

/// The columns and their types in the table of a gate.
fn gate_columns(store: &str) -> Vec<(String, String)> {
    let start = format!("| {store} | `resource`");
    let at = PAGE.find(&start).expect("the gate's table");
    let rows = PAGE[at..].split("\n\n").next().expect("rows");
    rows.lines()
        .map(|row| {
            let cell = row.split('|').nth(2).expect("a cell").trim();
            let (column, kind) = cell.split_once(' ').expect("a type");
            let kind = kind.split(',').next().unwrap_or(kind);
            (column.trim_matches('`').to_owned(), kind.to_owned())
        })
        .collect()
}

/// The columns and their types that a statement creates.
fn created_in(statement: &str) -> Vec<(&str, &str)> {
    let body = statement.split_once('(').expect("columns").1;
    let lines = body.lines().map(str::trim).filter(|line| {
        let first = line.split(' ').next().unwrap_or_default();
        !first.is_empty() && first.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    });
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(column, rest)| (column, rest.split([' ', ',']).next().unwrap_or(rest)))
        .collect()
}

#[test]
fn a_listing_of_postgres_has_the_parameters_that_it_says() {
    let sql = postgres::PostgresStatements::new("app", Some("locks"), None).expect("names");
    for (text, compare) in [(sql.list(false, true), ">="), (sql.list(true, true), ">")] {
        assert!(
            text.contains(&format!("t.key OPERATOR(pg_catalog.{compare})")),
            "{text}"
        );
        for parameter in 1..=5 {
            assert!(text.contains(&format!("${parameter}")), "${parameter}");
        }
        assert!(!text.contains("$6") && text.contains("t.holder"));
        assert!(text.contains(r#"FROM "app"."locks" t"#), "{text}");
    }
}

/// The columns and their types as a table of the page shows them.
fn columns(table: usize) -> Vec<(&'static str, &'static str)> {
    let section = PAGE.split("| table | column | value |").nth(table);
    let section = section.and_then(|rest| rest.split("\n\n").next());
    let rows = section.expect("a table").lines().skip(2);
    rows.map(|row| {
        let (column, rest) = row
            .split_once("| `")
            .and_then(|(_, rest)| rest.split_once("` "))
            .expect("a column");
        let kind = rest.split([' ', ',']).next().expect("a type");
        (column, kind)
    })
    .collect()
}

/// The columns and their types as statements create them.
fn created<'a>(statements: impl Iterator<Item = &'a str>) -> Vec<(&'a str, &'a str)> {
    let lines = statements
        .filter(|statement| statement.contains("CREATE TABLE"))
        .flat_map(str::lines)
        .filter(|line| line.starts_with("  ") && !line.trim().starts_with("--"));
    lines
        .filter_map(|line| line.trim().split_once(' '))
        .filter_map(|(column, kind)| Some((column, kind.split([' ', ',']).next()?)))
        // Not a setting of the table.
        .filter(|(_, kind)| *kind != "=")
        .collect()
}

#[test]
fn the_tables_have_the_columns_shown() {
    let sql = postgres::PostgresStatements::new("public", None, None).expect("names");
    let names = [("TEXT", "pg_catalog.text"), ("BIGINT", "pg_catalog.int8")];
    let shown: Vec<_> = columns(1)
        .into_iter()
        .map(|(column, kind)| {
            let name = names.iter().find(|(shown, _)| *shown == kind);
            (column, name.expect("a type of Postgres").1)
        })
        .collect();
    assert_eq!(shown, created(sql.setup().into_iter()));
    assert_eq!(columns(2), created([sqlite::SCHEMA].into_iter()));
}

#[test]
fn the_functions_have_the_parameters_shown() {
    let sql = postgres::PostgresStatements::new("public", None, None).expect("names");
    let version = postgres::FUNCTIONS_VERSION;
    says(&format!(
        "named `syncguard_v{version}_acquire`, `_acquire_held`, `_extend` and `_release`"
    ));
    let section = PAGE.split("### Functions").nth(1).expect("a section");
    for (name, call) in [
        ("acquire", sql.acquire()),
        ("acquire_held", sql.acquire_held()),
        ("extend", sql.extend()),
        ("release", sql.release()),
    ] {
        let function = format!("\"syncguard_v{version}_{name}\"(");
        assert!(call.contains(&function), "{call}");
        let setup = sql.setup();
        let create = setup
            .iter()
            .find(|s| s.contains(&function))
            .expect("a function");
        let list = create.split(&function).nth(1).expect("parameters");
        let list = list.split(")\nLANGUAGE").next().expect("parameters");
        let line = section
            .lines()
            .find(|l| l.starts_with(&format!("| {name} |")));
        let cells: Vec<_> = line.expect("a row").split(" | ").collect();
        let stated = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for parameter in list.split(',').map(str::trim) {
            match parameter.strip_prefix("OUT ") {
                Some(output) => outputs.extend(output.split(' ').next()),
                None => inputs.extend(parameter.split(' ').next()),
            }
        }
        assert_eq!(stated(cells[1]), inputs, "{name}");
        assert_eq!(stated(cells[2]), outputs, "{name}");
    }
}
