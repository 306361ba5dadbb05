//! Inputs made by hand: what well-behaved servers and callers send. The other files of the corpus were found by running.

use std::fs;
use std::path::Path;

use crate::server::joined;

/// Writes the inputs to the folders of their targets.
///
/// # Errors
/// What could not be written.
pub fn write(corpus: &Path) -> Result<(), String> {
    let all = [
        ("resp", resp()),
        ("redis_session", redis()),
        ("redis_routes", routes()),
        ("postgres_session", postgres()),
        ("urls", urls()),
        ("names", names()),
        ("stored_values", values()),
        ("sqlite_rows", rows()),
        ("c_texts", texts()),
        ("c_client_options", client_options()),
        ("c_lock_options", lock_options()),
    ];
    for (target, inputs) in all {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (n, input) in inputs.iter().enumerate() {
            let file = folder.join(format!("seed-{n:02}"));
            fs::write(&file, input).map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(())
}

fn resp() -> Vec<Vec<u8>> {
    [
        &b"+OK\r\n"[..],
        b"-ERR unknown command\r\n",
        b":-2\r\n",
        b"$15\r\n000000000000001\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*4\r\n:1\r\n$15\r\n000000000000001\r\n:1700000000000\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
        b"*4\r\n:0\r\n:30000\r\n$15\r\n000000000000001\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        b"*2\r\n$-1\r\n*-1\r\n+more\r\n",
        b"$3\r\n\r\n\r\r\n",
        b"-\xff\xfe\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into()
}

fn redis() -> Vec<Vec<u8>> {
    let hello = |steps: &str| {
        format!("{steps}*2\r\n$10\r\n1700000000\r\n$6\r\n123456\r\n+OK\r\n").into_bytes()
    };
    let lock = r#"{"key":"orders:v3ryprivate","lockId":"JjYEnSICuoi1IlfW3NFLOw","fence":"000000000000001","acquiredAtMs":1700000000000,"expiresAtMs":1700000030000}"#;
    let found = format!("${}\r\n{lock}\r\n", lock.len());
    let info = "# Memory\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n";
    let check = format!(
        ":1\r\n:1\r\n${}\r\n{info}\r\n*4\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n$25\r\nno-appendfsync-on-rewrite\r\n$2\r\nno\r\n",
        info.len()
    );
    let mut inputs = Vec::new();
    for (verb, answers) in [
        (
            0,
            vec![
                "*4\r\n:1\r\n$15\r\n000000000000001\r\n:1700000000000\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
            ],
        ),
        (
            0,
            vec![
                "*4\r\n:0\r\n:30000\r\n$15\r\n000000000000001\r\n$24\r\n0123456789abcdef01234567\r\n",
            ],
        ),
        (
            0,
            vec![
                "*2\r\n:-3\r\n:1700000099999\r\n",
                "*4\r\n:1\r\n$15\r\n000000000000002\r\n:1700000000000\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
            ],
        ),
        (
            0,
            vec![
                "-NOSCRIPT No matching script.\r\n",
                "*4\r\n:1\r\n$15\r\n000000000000003\r\n:1700000000000\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
            ],
        ),
        (1, vec![":1\r\n"]),
        (1, vec![":-2\r\n"]),
        (
            2,
            vec!["*3\r\n:1\r\n:1700000000000\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n"],
        ),
        (2, vec![":-1\r\n"]),
        (3, vec![":0\r\n"]),
        (4, vec![found.as_str()]),
        (5, vec![found.as_str()]),
        (5, vec!["$-1\r\n"]),
        (6, vec![check.as_str()]),
        (
            3,
            vec!["-READONLY You can't write against a read only replica.\r\n"],
        ),
        (
            3,
            vec!["-NOPERM User app has no permissions to run the 'evalsha' command\r\n"],
        ),
    ] {
        let pieces: Vec<Vec<u8>> = [hello("")]
            .into_iter()
            .chain(answers.iter().map(|a| a.as_bytes().to_vec()))
            .collect();
        inputs.push(joined(&[verb], &pieces));
    }
    inputs.push(joined(&[0x40 | 3], &[hello("+OK\r\n"), b":1\r\n".to_vec()]));
    inputs.push(joined(
        &[0xc0 | 3],
        &[hello("+OK\r\n+OK\r\n"), b":1\r\n".to_vec()],
    ));
    inputs.push(joined(
        &[0x80 | 3],
        &[b"-WRONGPASS invalid username-password pair\r\n-NOAUTH x\r\n-NOAUTH x\r\n".to_vec()],
    ));
    inputs
}

/// Answers of sentinels (0), lines of cluster nodes (1), messages of a listening connection (2).
fn routes() -> Vec<Vec<u8>> {
    let address = "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n";
    let subscribed = "*3\r\n$9\r\nsubscribe\r\n$17\r\nsyncguard:freed:k\r\n:1\r\n";
    let freed = "*3\r\n$7\r\nmessage\r\n$17\r\nsyncguard:freed:k\r\n$1\r\nx\r\n";
    let other = "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\nx\r\n";
    let all: [(u8, &[&str]); 10] = [
        (0, &[address, "", address, ""]),
        (0, &["$-1\r\n", "$-1\r\n", "$-1\r\n"]),
        (0, &["-NOAUTH hunter2zq\r\n", "*1\r\n$1\r\nx\r\n", address]),
        (0, &["*2\r\n$1\r\nh\r\n$1\r\n0\r\n", "+OK\r\n"]),
        (
            1,
            &[
                "MOVED 12182 10.0.0.1:7000",
                "ASK 12182 ::1:7001",
                "MOVED 12182 :7002",
            ],
        ),
        (
            1,
            &["MOVED 1 10.0.0.1:7000", "MOVED 12182 ?:1", "ASK ", "ERR x"],
        ),
        (2, &[subscribed, freed, other, "+PONG\r\n"]),
        (2, &["-NOPERM hunter2zq\r\n"]),
        (2, &[subscribed, ":1\r\n"]),
        (2, &["*-1\r\n"]),
    ];
    let all = all.into_iter().map(|(head, pieces)| {
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|p| p.as_bytes().to_vec()).collect();
        joined(&[head], &pieces)
    });
    all.collect()
}

/// A message of a Postgres server.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a short message");
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

fn fields(values: &[Option<&[u8]>]) -> Vec<u8> {
    let length = |n: usize| u32::try_from(n).expect("a short value").to_be_bytes();
    values
        .iter()
        .flat_map(|value| match value {
            Some(value) => [&length(value.len())[..], value].concat(),
            None => vec![0xff; 4],
        })
        .collect()
}

fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let count = u16::try_from(values.len())
        .expect("few columns")
        .to_be_bytes();
    message(b'D', &[&count[..], &fields(values)].concat())
}

/// A row with one record, whose fields have types that are not looked at.
fn record(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut whole = u32::try_from(values.len())
        .expect("few fields")
        .to_be_bytes()
        .to_vec();
    for value in values {
        whole.extend([0, 0, 0, 25]);
        whole.extend(fields(&[*value]));
    }
    row(&[Some(&whole)])
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// The answer to a transaction in a block.
fn block(rows: &[Vec<u8>]) -> Vec<u8> {
    let (parsed, bound) = (message(b'1', &[]), message(b'2', &[]));
    let select = message(b'C', b"SELECT 1\0");
    [
        parsed,
        bound,
        rows.concat(),
        select,
        ready(b'T'),
        message(b'C', b"COMMIT\0"),
        ready(b'I'),
    ]
    .concat()
}

fn postgres() -> Vec<Vec<u8>> {
    let admitted = message(b'R', &[0; 4]);
    let greeting = [
        message(b'S', b"client_encoding\0UTF8\0"),
        message(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]),
        ready(b'I'),
    ]
    .concat();
    let now = 1_700_000_000_000_i64.to_be_bytes();
    let later = 1_700_000_030_000_i64.to_be_bytes();
    let greet = |own: u8| {
        block(&[row(&[
            Some(&[0]),
            Some(b"public"),
            Some(&[own]),
            Some(&now),
        ])])
    };
    let (id, fence): (&[u8], &[u8]) = (b"JjYEnSICuoi1IlfW3NFLOw", b"000000000000001");
    let hello = |own| [[admitted.clone(), greeting.clone()].concat(), greet(own)];
    let with = |verb: u8, own: u8, answers: &[Vec<u8>]| {
        joined(&[verb], &[&hello(own)[..], answers].concat())
    };
    let mut inputs = vec![
        with(
            0,
            0,
            &[block(&[record(&[
                Some(&[1]),
                Some(id),
                Some(fence),
                Some(&later),
                Some(&now),
                None,
            ])])],
        ),
        with(
            0,
            0,
            &[block(&[record(&[
                Some(&[0]),
                Some(b"AAAAAAAAAAAAAAAAAAAAAA"),
                Some(fence),
                Some(&later),
                Some(&now),
                None,
            ])])],
        ),
        with(1, 0, &[block(&[record(&[Some(&[1]), Some(&[1])])])]),
        with(2, 0, &[block(&[record(&[Some(&[1]), Some(&later), None])])]),
        with(
            2,
            0,
            &[
                block(&[record(&[Some(&[0]), None, Some(&later)])]),
                block(&[record(&[Some(&[1]), Some(&later), None])]),
            ],
        ),
        with(3, 0, &[block(&[row(&[Some(&later), Some(&now)])])]),
        with(
            4,
            0,
            &[block(&[row(&[
                Some(id),
                Some(fence),
                Some(&later),
                Some(&now),
                Some(b"orders:v3ryprivate"),
                Some(&now),
            ])])],
        ),
        with(
            5,
            0,
            &[block(&[row(&[
                Some(id),
                Some(fence),
                Some(&later),
                Some(&now),
                Some(b"orders:v3ryprivate"),
                Some(&now),
            ])])],
        ),
        with(5, 0, &[block(&[])]),
        with(7, 0, &[block(&[row(&[Some(&3_i64.to_be_bytes())])])]),
        with(
            6,
            0,
            &[block(&[row(&[
                Some(&[1]),
                Some(&[1]),
                Some(&[1]),
                Some(b"on"),
                Some(b"on"),
            ])])],
        ),
    ];
    // A session of our own: no block, and the statement by its name.
    let (parsed, bound) = (message(b'1', &[]), message(b'2', &[]));
    let set = [parsed.clone(), bound.clone(), message(b'C', b"SET\0")].concat();
    let ours = [
        parsed.clone(),
        bound.clone(),
        row(&[Some(&[0, 0, 0, 1])]),
        message(b'C', b"SELECT 1\0"),
    ]
    .concat();
    let answer = [
        parsed,
        bound,
        record(&[Some(&[1]), Some(&[1])]),
        message(b'C', b"SELECT 1\0"),
        ready(b'I'),
    ]
    .concat();
    inputs.push(with(1, 1, &[[set.clone(), ours, answer].concat()]));
    let stale = [
        message(b'E', b"SERROR\0VERROR\0C26000\0Mno such\0\0"),
        ready(b'I'),
    ]
    .concat();
    inputs.push(with(
        1,
        1,
        &[
            [set, stale].concat(),
            block(&[record(&[Some(&[1]), Some(&[0])])]),
        ],
    ));
    // Passwords and refusals.
    inputs.push(joined(
        &[3],
        &[
            message(b'R', &[0, 0, 0, 3]),
            [admitted.clone(), greeting.clone()].concat(),
            greet(0),
        ],
    ));
    inputs.push(joined(
        &[3],
        &[
            message(b'R', b"\0\0\0\x05salt"),
            [admitted.clone(), greeting.clone()].concat(),
            greet(0),
        ],
    ));
    let sasl = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    inputs.push(joined(
        &[3],
        &[
            sasl,
            message(b'R', b"\0\0\0\x0br=abc,s=YWJj,i=1"),
            message(b'R', b"\0\0\0\x0cv=YWJj"),
        ],
    ));
    inputs.push(joined(
        &[3],
        &[message(
            b'E',
            b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"app\"\0\0",
        )],
    ));
    inputs.push(joined(
        &[0x80 | 3],
        &[
            [
                message(b'N', b"SNOTICE\0Mx\0\0"),
                admitted.clone(),
                greeting.clone(),
            ]
            .concat(),
            greet(0),
        ],
    ));
    let refused = [
        message(
            b'E',
            b"SERROR\0VERROR\0C42P01\0Mrelation \"locks\" does not exist\0\0",
        ),
        ready(b'E'),
        message(b'C', b"ROLLBACK\0"),
        ready(b'I'),
    ];
    inputs.push(with(3, 0, &[refused.concat()]));
    inputs
}

fn urls() -> Vec<Vec<u8>> {
    let texts: [(u8, &str); 17] = [
        (0, "localhost:6379/0"),
        (0, "user@[::1]:7"),
        (1, "redis.example.com?db=3"),
        (2, "/run/redis.sock?db=1&user=u&pass=p"),
        (3, "a:26379,b/main/2?sentinel_user=s&sentinel_password=t"),
        (5, "a:7000,b:7001,[::1]:7002"),
        (
            7,
            "app@db.example/app?sslmode=verify-full&application_name=x",
        ),
        (
            7,
            "app@h1:1,h2:2/db?target_session_attrs=primary&connect_timeout=3",
        ),
        (8, "app@/db?host=/run/postgresql&port=5433"),
        (9, "/var/lib/locks.db?mode=0660"),
        (9, "locks%20%3F.db"),
        (10, "/a/b"),
        (11, "localhost user=app password='a b\\'c' dbname=db"),
        (12, "h port=1 sslmode=disable"),
        (13, "redis://h"),
        (13, "user=app host=/run sslmode=prefer"),
        (0, "%40%3a@h/%31"),
    ];
    texts
        .iter()
        .map(|(scheme, text)| [&[*scheme, 5], text.as_bytes()].concat())
        .collect()
}

fn names() -> Vec<Vec<u8>> {
    let long = "é".repeat(256);
    let longer = format!("{}\n{}", "k".repeat(500), "p".repeat(600));
    [
        "invoice:42",
        "a\n{app}:",
        "fence:syncguard:x",
        "id:JjYEnSICuoi1IlfW3NFLOw",
        "JjYEnSICuoi1IlfW3NFLOw",
        "000000000000001",
        "900000000000000",
        "e\u{301}\u{fb01}",
        "locks_2",
        "x\nfence",
        "",
        &long,
        &longer,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

fn values() -> Vec<Vec<u8>> {
    let good = r#"{"key":"a\/b","lockId":"JjYEnSICuoi1IlfW3NFLOw","fence":"000000000000007","acquiredAtMs":1700000000000,"expiresAtMs":1700000030000}"#;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    [
        good.to_owned(),
        good.replace("a\\/b", "\\u0001\\ud83d\\ude00\\u007f/"),
        good.replace("{", "{\"extra\":[1,2,{\"x\":null}],"),
        good.replace("1700000030000", "99999999999999"),
        good.replace("1700000030000", "100000000000000"),
        good.replace("1700000000000", "-5"),
        good.replace("1700000000000", "1e3"),
        "null".to_owned(),
        deep,
    ]
    .map(String::into_bytes)
    .into()
}

/// A verb and the values of a live row, as `sqlite_rows` reads them.
fn rows() -> Vec<Vec<u8>> {
    let number = |n: i64| [&[1][..], &n.to_be_bytes()].concat();
    let mut inputs = Vec::new();
    for verb in 0..9 {
        let live = [
            vec![verb, 4, 5],
            number(1_700_000_030_000),
            number(1_700_000_000_000),
            number(1),
            vec![4, 6],
            // The boot clock of no machine is there yet, and the lease is a legal one.
            [&[7][..], &[0x70, 0, 0, 0]].concat(),
            [&[7][..], &[0, 0, 0, 1]].concat(),
            vec![1],
            number(1),
        ];
        inputs.push(live.concat());
    }
    inputs.push(
        [
            vec![3, 4, 5],
            number(5),
            number(5),
            number(-1),
            vec![4, 3, 1, b'x'],
            number(i64::MAX),
            vec![0],
        ]
        .concat(),
    );
    inputs.push(vec![0]);
    inputs
}

fn texts() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 9] = [
        b"invoice:42",
        b"JjYEnSICuoi1IlfW3NFLOw",
        b"000000000000001",
        b"redis://localhost",
        b"postgres://user:hunter2zq@h/db",
        b"a\0b",
        b"\xff\xfe",
        b"",
        b"sqlite:/x",
    ];
    let forms = (0..8).flat_map(|form| texts.iter().map(move |text| [&[form], *text].concat()));
    forms.collect()
}

fn client_options() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for kind in 0..8 {
        for set in [0, 1, 31, 32, 64] {
            for store in 0..2 {
                inputs.push([&[kind, 3, set, store][..], b"app"].concat());
            }
        }
    }
    inputs
}

fn lock_options() -> Vec<Vec<u8>> {
    let whole = |ttl: i64, wait: i64, heartbeat: i64, hold: i64, rest: [i32; 4]| {
        let mut bytes = [ttl, wait, heartbeat, hold].map(i64::to_le_bytes).concat();
        bytes.extend(rest.map(i32::to_le_bytes).concat());
        bytes
    };
    let structs = [
        whole(0, 0, 0, 0, [0; 4]),
        whole(10_000, -1, -1, -1, [-1, 50, 2, 3]),
        whole(2, 5, 1, 7, [3, 1, 1, 2]),
        whole(-1, -2, -3, -4, [-5, -6, 7, 8]),
        whole(i64::MAX, i64::MAX, i64::MAX, i64::MAX, [i32::MAX, -1, 1, 1]),
    ];
    let mut inputs = Vec::new();
    for kind in 0..8 {
        for (n, bytes) in structs.iter().enumerate() {
            let remaining = [1000, -1, 0, i64::MAX, -7][n].to_le_bytes();
            let head = [kind, 2, u8::try_from(n).expect("few"), 1];
            inputs.push([&head[..], &remaining, bytes].concat());
        }
    }
    inputs
}
