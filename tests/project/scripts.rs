//! Tests that no script and no statement has a number of its own: tolerance and limits are passed to them.
//!
//! The test looks at every number in them. The few that are allowed are listed, each with the text around it.

use std::path::{Path, PathBuf};

/// A number that may stand in a script, with what is around it, and in which file.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "stores/postgres/functions.sql",
        &[
            // Seconds to milliseconds.
            "pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000);",
            "fence = GREATEST(v_least_fence, f.fence OPERATOR(pg_catalog.+) 1)",
            "IF p_max_clock_ms OPERATOR(pg_catalog.>) 0::pg_catalog.int8 THEN",
            "f.fence OPERATOR(pg_catalog.>=) 0::pg_catalog.int8",
            "VALUES (p_fence_key, 0, p_user_key)",
            // The digits of a fence.
            "::pg_catalog.text, 15, '0');",
        ],
    ),
    // The limits of a gate are those of the library: a test of each gate compares them.
    (
        "stores/postgres/gate.sql",
        &[
            "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0",
            "fillfactor = 50,",
            "pg_catalog.octet_length(p_resource) OPERATOR(pg_catalog.>) 0)",
            "pg_catalog.octet_length(p_resource) OPERATOR(pg_catalog.>) 512 THEN",
            "is empty or longer than 512 bytes'",
            "p_fence OPERATOR(pg_catalog.>) 0::pg_catalog.int8",
            "p_fence OPERATOR(pg_catalog.<=) 900000000000000::pg_catalog.int8",
            "a number from 1 to 900000000000000'",
            "'SGG01'",
            "'SGG02'",
        ],
    ),
    ("stores/postgres/gate.rs", &["SELECT 1 FROM "]),
    (
        "stores/postgres/gate_inspect.sql",
        &[
            "a.attnum > 0",
            "i.indnkeyatts = 1",
            "a.attnum = i.indkey[0]",
        ],
    ),
    (
        "stores/sqlite/gate.sql",
        &[
            "NOT BETWEEN 1 AND 512;",
            "is empty or longer than 512 bytes'",
            "NOT BETWEEN 1 AND 900000000000000;",
            "a number from 1 to 900000000000000'",
            "SELECT 1 FROM syncguard_fence_gates",
        ],
    ),
    (
        "stores/redis/lua/gate.lua",
        &[
            "table.remove(KEYS, 1), table.remove(ARGV, 1)",
            "#gate == 0 or #gate > 518 then",
            "#given > 15",
            "tonumber(given) < 1 or tonumber(given) > 900000000000000 then",
            "a number from 1 to 900000000000000'",
            "#newest > 15",
            "'%015.0f'",
        ],
    ),
    ("stores/redis/lua/reset_gate.lua", &["then return 0 end"]),
    ("stores/redis/lua/fenced_set.lua", &["return 1"]),
    (
        "stores/postgres/schema.sql",
        &[
            "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0",
            "DEFAULT 0,",
            "fillfactor = 50,",
        ],
    ),
    (
        "stores/postgres/inspect.sql",
        &[
            "a.attnum > 0",
            "i.indnkeyatts = 1",
            "i.indkey[0] = col.attnum",
            "pronargdefaults > 0",
            "provariadic <> 0",
            "count(oid) > 0",
            "older than Postgres 13'",
            "::int < 130000",
        ],
    ),
    (
        "stores/postgres/sql.rs",
        &[
            "ORDER BY s.place LIMIT 1)",
            "set_config('lock_timeout', '0', false)",
            "pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8",
            "RETURNING 1)",
        ],
    ),
    (
        "stores/redis/lua/list.lua",
        &[
            // Places in lists and texts.
            "{ARGV[1], server}",
            "tonumber(ARGV[3]), 0",
            "redis.call('SCAN', found[1],",
            "found[1], left = page[1], left - step",
            "ipairs(page[2])",
            "string.sub(text, 1, #with)",
            "found[#found + 1], bytes",
            // How much a step takes, and how much a page.
            "math.min(left, 100)",
            "left <= 0 or found[1] == '0' or bytes > 262144 or #found > 1000",
            // The length of a lock id.
            "#ARGV[6] + 22)",
        ],
    ),
    (
        "stores/postgres/setup.rs",
        &["pg_advisory_xact_lock(1937337955, 1)"],
    ),
    (
        "stores/postgres/transaction.rs",
        &["SELECT 1 OPERATOR(pg_catalog./)"],
    ),
    ("stores/postgres/watch.rs", &["SELECT 1::pg_catalog.int8"]),
    (
        "stores/sqlite/setup.rs",
        &[
            "ORDER BY 1",
            "SELECT 1 FROM pragma_index_list",
            "l.partial = 0",
            "LIMIT 2",
        ],
    ),
    (
        "stores/redis/lua/prelude.lua",
        &[
            "time[1] * 1000 + math.floor(time[2] / 1000)",
            // What is far larger than any lock, and no time that can be.
            "#value > 65536",
            "lock.expiresAtMs >= 0 and lock.expiresAtMs < 1e14 and lock.expiresAtMs % 1 == 0",
        ],
    ),
    (
        "stores/redis/lua/is_locked.lua",
        &["return 0 end", "live and 1 or 0"],
    ),
    (
        "stores/redis/lua/acquire.lua",
        &[
            "now > tonumber(counter or 0) + 1 then",
            "string.format('%.0f', number)",
            "string.format('%015.0f', number)",
            // The length of a lock id.
            "#id ~= 22",
            // The hash that is shown in place of an id.
            "local a, b, d = 0, 0, 0",
            "for i = 1, #id do",
            "a = (31 * a + c) % 4294967296",
            "b = (127 * b + 3 * c) % 4294967296",
            "d = (2047 * d + 7 * c) % 4294967296",
            "'%08x%08x%08x'",
            "return {-3, now}",
            "return {0, lock.expiresAtMs - now,",
            "return {1, lock.fence, lock.expiresAtMs,",
            "return {1, fence, expires,",
            "'WRONGTYPE', 1, true",
            "#counter > 19",
            "counter == '0'",
            "'^[1-9]%d*$'",
        ],
    ),
    (
        "stores/redis/lua/extend.lua",
        &[
            "return {-3, now}",
            "return -1 end",
            "return 0 end",
            "return -2",
            "return {1, lock.expiresAtMs,",
        ],
    ),
    (
        "stores/redis/lua/release.lua",
        &["return -1 end", "return 0 end", "live and 1 or -2"],
    ),
    (
        "stores/redis/lua/rehearse.lua",
        &["'PX', 1000)", "'not an integer', 1, true", "return 1"],
    ),
];

/// What counts as a place among parameters, not as a number.
const PLACES: &[&str] = &["KEYS[", "ARGV["];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Lua,
    Sql,
    /// Only texts in quotes that look like SQL are read.
    Rust,
}

/// The numbers in `text` that are not allowed there, each with its line.
fn numbers(text: &str, language: Language, allowed: &[&str]) -> Vec<String> {
    let code = match language {
        Language::Rust => statements(text),
        _ => text
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n"),
    };
    // Line breaks inside of an allowed text do not matter.
    let mut code = code.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    for allowed in allowed {
        code = code.replace(allowed, "");
    }
    for place in PLACES {
        for n in 1..=9 {
            code = code.replace(&format!("{place}{n}]"), "");
        }
    }
    code.lines()
        .filter(|line| has_number(line))
        .map(str::to_owned)
        .collect()
}

/// Whether a number stands in the line. Digits in a name, `$1` and `?1` are none.
fn has_number(line: &str) -> bool {
    let mut before = ' ';
    line.chars().any(|c| {
        let named = before.is_alphanumeric() || "_$?".contains(before);
        before = c;
        c.is_ascii_digit() && !named
    })
}

/// The statements in the texts of a source file, without its tests.
fn statements(source: &str) -> String {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut inside: Option<String> = None;
    for line in code.lines() {
        if inside.is_none() && line.trim_start().starts_with("//") {
            continue;
        }
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match (&mut inside, c) {
                (None, '"') => inside = Some(String::new()),
                // A quotation mark as a character of its own.
                (None, '\'') if chars.peek() == Some(&'"') => drop(chars.next()),
                (None, _) => {}
                (Some(_), '"') => found.extend(inside.take()),
                (Some(text), '\\') => text.extend(chars.next().map(|_| ' ')),
                (Some(text), c) => text.push(c),
            }
        }
        if let Some(text) = &mut inside {
            text.push('\n');
        }
    }
    let words = [
        "SELECT ",
        "INSERT ",
        "UPDATE ",
        "DELETE ",
        "WHERE ",
        "redis.call",
    ];
    found.retain(|text| words.iter().any(|word| text.contains(word)));
    found.join("\n")
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every script and every file that may hold statements: its name under `src`, its language, its text.
fn files() -> Vec<(String, Language, String)> {
    let mut all = Vec::new();
    let mut folders = vec![sources()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let language = match path.extension().and_then(|e| e.to_str()) {
                Some("lua") => Language::Lua,
                Some("sql") => Language::Sql,
                Some("rs") => Language::Rust,
                _ => continue,
            };
            let name = path.strip_prefix(sources()).expect("a source");
            let name = name.display().to_string();
            all.push((
                name,
                language,
                std::fs::read_to_string(&path).expect("a text"),
            ));
        }
    }
    all
}

fn allowed(name: &str) -> &'static [&'static str] {
    ALLOWED
        .iter()
        .find(|(file, _)| *file == name)
        .map_or(&[], |(_, allowed)| allowed)
}

#[test]
fn no_script_and_no_statement_carries_a_number_of_its_own() {
    let mut scripts = 0;
    let mut wrong = Vec::new();
    for (name, language, text) in files() {
        scripts += usize::from(language != Language::Rust);
        for line in numbers(&text, language, allowed(&name)) {
            wrong.push(format!("{name}: {line}"));
        }
        let lower = text.to_lowercase();
        if language == Language::Sql && name.starts_with("postgres") {
            // The start of the transaction is not the time.
            assert!(
                !lower.contains("now()") && !lower.contains("current_timestamp"),
                "{name}"
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(scripts >= 11, "only {scripts} scripts were looked at");
}

/// The tolerance is used once in each function and once in the scripts, and only to be subtracted from the time.
#[test]
fn the_tolerance_is_used_once() {
    let functions = include_str!("../../src/stores/postgres/functions.sql");
    for function in functions.split("\n----\n") {
        let body = function.split("$syncguard$").nth(1).expect("a body");
        assert_eq!(body.matches("p_tolerance_ms").count(), 1);
        assert_eq!(
            body.matches("_now_ms OPERATOR(pg_catalog.-) p_tolerance_ms))")
                .count(),
            1
        );
    }
    let prelude = include_str!("../../src/stores/redis/lua/prelude.lua");
    assert_eq!(prelude.matches("tolerance").count(), 2);
    assert!(prelude.contains("lock.expiresAtMs > now - tolerance\n"));
}

/// A tolerance to plant: the file, the text there, and the text in its place.
const PLANTED: [(&str, &str, &str); 15] = [
    (
        "stores/postgres/functions.sql",
        "p_tolerance_ms))",
        "p_tolerance_ms OPERATOR(pg_catalog.-) 500))",
    ),
    (
        "stores/postgres/functions.sql",
        "p_tolerance_ms))",
        "(p_tolerance_ms OPERATOR(pg_catalog.*) 2)))",
    ),
    (
        "stores/postgres/functions.sql",
        "p_tolerance_ms))",
        "1000))",
    ),
    (
        "stores/postgres/functions.sql",
        "p_tolerance_ms))",
        "p_tolerance_ms - 7))",
    ),
    (
        "stores/postgres/functions.sql",
        "clock_timestamp())",
        "clock_timestamp() - interval '1 second')",
    ),
    (
        "stores/postgres/functions.sql",
        "o_now_ms OPERATOR(pg_catalog.+) p_ttl_ms",
        "o_now_ms OPERATOR(pg_catalog.+) p_ttl_ms + .5",
    ),
    (
        "stores/postgres/sql.rs",
        "OPERATOR(pg_catalog.-) $1",
        "OPERATOR(pg_catalog.-) 3000",
    ),
    (
        "stores/postgres/sql.rs",
        "OPERATOR(pg_catalog.<=) (SELECT ms FROM cutoff)",
        "OPERATOR(pg_catalog.<=) (SELECT ms - 9 FROM cutoff)",
    ),
    (
        "stores/redis/lua/prelude.lua",
        "now - tolerance",
        "now - tolerance - 250",
    ),
    (
        "stores/redis/lua/prelude.lua",
        "now - tolerance",
        "now - 1000",
    ),
    (
        "stores/redis/lua/prelude.lua",
        "now - tolerance",
        "now - 1e3",
    ),
    (
        "stores/redis/lua/acquire.lua",
        "now + ARGV[2]",
        "now + ARGV[2] + 42",
    ),
    (
        "stores/redis/lua/extend.lua",
        "now + ARGV[2]",
        "now + ARGV[2] * 2",
    ),
    (
        "stores/sqlite/sql.rs",
        "expires_boot_ms < ?2",
        "expires_boot_ms < ?2 - 500",
    ),
    (
        "stores/sqlite/sql.rs",
        "SET expires_at_ms = ?3",
        "SET expires_at_ms = ?3 + 1500",
    ),
];

/// The look finds what it is there for: a tolerance is written into copies of the scripts, in many forms.
#[test]
fn a_tolerance_of_its_own_would_be_seen() {
    for (file, from, to) in PLANTED {
        let (name, language, text) = files()
            .into_iter()
            .find(|(name, ..)| name == file)
            .expect("a script");
        let planted = text.replace(from, to);
        assert_ne!(planted, text, "{file}: {from} is not there");
        let seen = numbers(&planted, language, allowed(&name));
        assert!(!seen.is_empty(), "{file}: {to} is not seen");
    }
}
