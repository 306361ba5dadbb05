//! Any text to `Client::open_with`, with a password in it at every place where a user may put one.
//!
//! It is opened without I/O or refused as an invalid argument, and the password is neither in the error nor in the client's `Debug`.

use syncguard::{Client, ClientOptions, ErrorCode};

use crate::engine::Target;
use crate::{SECRET, gist, outcome, says_nothing};

/// How it is run.
pub const TARGET: Target = Target {
    name: "urls",
    run,
    words: &[
        b"://",
        b":",
        b"@",
        b"/",
        b"?",
        b"&",
        b"=",
        b"#",
        b"%",
        b"%00",
        b"%2F",
        b"%40",
        b"%ff",
        b"%C3%A9",
        b",",
        b"[::1]",
        b"[",
        b"]",
        b":6379",
        b":0",
        b":65536",
        b"localhost",
        b"127.0.0.1",
        b"/0",
        b"/4294967296",
        b"sslmode=",
        b"require",
        b"verify-full",
        b"connect_timeout=",
        b"password=",
        b"sentinel_password=",
        b"sentinel_user=",
        b"pass=",
        b"user=",
        b"db=",
        b"host=",
        b"port=",
        b"dbname=",
        b"pooler=yes",
        b"mode=0660",
        b"channel_binding=require",
        b"'",
        b"\\",
        b" ",
        b"\0",
        b"main",
        b"options=",
        b"target_session_attrs=primary",
        b"sslrootcert=/x",
    ],
    max_len: 1024,
    short: 15_000,
    memory: 1 << 20,
};

const SCHEMES: [&str; 14] = [
    "redis://",
    "rediss://",
    "redis+unix://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
    "postgres://",
    "postgresql://",
    "sqlite:",
    "sqlite://",
    "host=",
    "user=app host=",
    "",
];

fn open(url: &str, options: &ClientOptions) -> u64 {
    match Client::open_with(url, options) {
        Ok(client) => {
            let shown = format!("{client:?}");
            assert!(!shown.contains(SECRET), "{shown}");
            let backend = client.capabilities().backend;
            let named = |schemes: &[&str]| schemes.iter().any(|scheme| url.starts_with(scheme));
            match backend {
                "redis" => assert!(named(&["redis"]), "{backend} for {url:?}"),
                "sqlite" => assert!(named(&["sqlite:"]), "{backend} for {url:?}"),
                "postgres" => assert!(
                    named(&["postgres://", "postgresql://"]) || url.contains('='),
                    "{backend} for {url:?}"
                ),
                other => panic!("an unknown store {other}"),
            }
            outcome(("opened", backend))
        }
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
            says_nothing(&error, &[SECRET]);
            gist(&error)
        }
    }
}

/// Executes one input: a scheme, where the text is cut for the password, and the text.
pub fn run(data: &[u8]) -> u64 {
    let [scheme, cut, text @ ..] = data else {
        return 0;
    };
    let scheme = SCHEMES[usize::from(*scheme) % SCHEMES.len()];
    let text = String::from_utf8_lossy(text);
    let mut cut = usize::from(*cut).min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let (before, after) = text.split_at(cut);
    let options = ClientOptions::new().key_prefix("{app}").on_warning(|_| {});
    let mut seen = open(&format!("{scheme}{text}"), &options);
    seen = outcome((
        seen,
        open(&format!("{scheme}user:{SECRET}@{text}"), &options),
    ));
    open(&format!("{scheme}{before}:{SECRET}{after}"), &options);
    for option in ["password", "pass", "sentinel_password"] {
        open(
            &format!("{scheme}{before}?{option}={SECRET}{after}"),
            &options,
        );
        open(
            &format!("{scheme}{before} {option}={SECRET}{after}"),
            &options,
        );
    }
    seen
}
