//! What the environment, service files and password files add to a URL.

use std::collections::BTreeMap;

use super::*;
use crate::backend::call::Call;
use crate::runtime::process::Owner;

/// Surroundings that a test makes up.
#[derive(Default)]
struct MadeUp {
    variables: BTreeMap<&'static str, &'static str>,
    home: Option<PathBuf>,
}

impl Surroundings for MadeUp {
    fn variable(&self, name: &str) -> Result<Option<String>, ()> {
        match self.variables.get(name) {
            Some(&"\u{fffd}") => Err(()),
            value => Ok(value.map(|value| (*value).to_owned())),
        }
    }

    fn home(&self) -> Option<PathBuf> {
        self.home.clone()
    }
}

fn made_up<const N: usize>(variables: [(&'static str, &'static str); N]) -> MadeUp {
    MadeUp {
        variables: BTreeMap::from(variables),
        home: None,
    }
}

fn limits() -> Limits<'static> {
    let minute = std::time::Duration::from_secs(60);
    Limits::enter(Owner::current(), minute, &Call::new()).expect("time is left")
}

fn resolved(text: &str, around: &MadeUp) -> Result<PostgresUrl, LockError> {
    match destination(text, around)? {
        Destination::Known(url) => Ok(*url),
        Destination::Service(service) => service.resolve(&limits()),
    }
}

fn host(url: &PostgresUrl) -> String {
    url.hosts[0].to_string()
}

#[test]
fn the_environment_counts_only_if_the_url_asks_for_it() {
    let around = made_up([
        ("PGHOST", "elsewhere"),
        ("PGPORT", "6000"),
        ("PGUSER", "app"),
        ("PGPASSWORD", "hunter2"),
        ("PGDATABASE", "locks"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLCERT", "/c"),
        ("PGSSLKEY", "/k"),
        ("PGCONNECT_TIMEOUT", "7"),
        ("PGPASSFILE", ""),
    ]);
    let url = resolved("postgres://me@h/db", &around).expect("a URL");
    assert_eq!((host(&url).as_str(), url.user.as_str()), ("h:5432", "me"));
    assert!(url.password.is_none() && url.password_file.is_none() && url.client_cert.is_none());
    assert!(resolved("postgres://me@/db", &around).is_err(), "no host");
    let url = resolved("env=1", &around).expect("all is there");
    assert_eq!(host(&url), "elsewhere:6000");
    assert_eq!((url.user.as_str(), url.database.as_str()), ("app", "locks"));
    assert_eq!(url.password.as_deref(), Some("hunter2"));
    assert_eq!(url.connect_timeout, Some(std::time::Duration::from_secs(7)));
    assert_eq!(url.client_cert.expect("both").key, PathBuf::from("/k"));
    // What the URL says wins.
    let url = resolved("postgres://me:own@h:1/db?env=1&sslmode=disable", &around).expect("a URL");
    assert_eq!((host(&url).as_str(), url.user.as_str()), ("h:1", "me"));
    assert_eq!(url.password.as_deref(), Some("own"));
    assert_eq!(url.ssl, super::super::url::SslMode::Disable);
    let around = made_up([("PGHOST", "elsewhere"), ("PGUSER", "app")]);
    assert!(resolved("postgres:///db?env=0", &around).is_err());
}

#[test]
fn variables_that_cannot_be_followed_are_refused() {
    for name in REFUSED {
        let mut around = made_up([("PGHOST", "h"), ("PGUSER", "u")]);
        around.variables.insert(name, "x");
        let error = resolved("env=1", &around).expect_err(name);
        assert!(error.message().contains(name), "{error}");
        assert!(resolved("postgres://u@h/db", &around).is_ok());
    }
    let odd = made_up([("PGHOST", "\u{fffd}")]);
    let error = resolved("env=1", &odd).expect_err("not UTF-8");
    assert!(error.message().contains("PGHOST"), "{error}");
    let error = resolved("postgres://u@h/db?env=yes", &odd).expect_err("no number");
    assert!(error.message().contains("0, 1"), "{error}");
}

#[test]
fn a_service_stands_between_the_url_and_the_environment() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("services.conf");
    let text = "# mine\n[other]\nhost=wrong\nuser=wrong\n\n[locks]\nhost=h1,h2\nport=6001\nuser=app\nuser=second\npassword=p:#=w\n[locks]\nhost=late\n";
    std::fs::write(&file, text).expect("written");
    let around = made_up([("PGUSER", "env"), ("PGDATABASE", "from-env")]);
    let dsn = format!(
        "service=locks env=1 port=6002 servicefile={}",
        file.display()
    );
    let url = resolved(&dsn, &around).expect("a service");
    assert_eq!(host(&url), "h1:6002");
    assert_eq!(url.hosts.len(), 2);
    assert_eq!(
        (url.user.as_str(), url.database.as_str()),
        ("app", "from-env")
    );
    assert_eq!(url.password.as_deref(), Some("p:#=w"));
    // By the environment alone, and in the home directory.
    std::fs::rename(&file, dir.path().join(".pg_service.conf")).expect("renamed");
    let mut around = made_up([("PGSERVICE", "locks")]);
    around.home = Some(dir.path().to_owned());
    assert_eq!(
        host(&resolved("env=1", &around).expect("a service")),
        "h1:6001"
    );
    let url = resolved("postgres:///db?service=locks", &around).expect("a service");
    assert_eq!(url.database, "db");
    assert!(url.password_file.is_none());
    // The system's file is the second one.
    let around = MadeUp {
        variables: BTreeMap::from([("PGSYSCONFDIR", "/nowhere")]),
        home: Some(dir.path().to_owned()),
    };
    let error = resolved("service=missing env=1", &around).err();
    let error = error.expect("no section");
    assert!(
        error.message().contains("/nowhere/pg_service.conf"),
        "{error}"
    );
}

#[test]
fn what_is_wrong_with_a_service_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("services.conf");
    let asked = |text: &[u8], more: &str| {
        std::fs::write(&file, text).expect("written");
        let dsn = format!("service=s servicefile={} {more}", file.display());
        let error = resolved(&dsn, &MadeUp::default()).expect_err("refused");
        assert_eq!(error.code(), crate::ErrorCode::InvalidArgument);
        assert!(!error.message().contains("hunter2"), "{error}");
        error.message().to_owned()
    };
    for (text, said) in [
        (&b"[t]\nhost=h\n"[..], "no section"),
        (b"[s]\nhunter2\n", "line 2: it is not name=value"),
        (b"[s]\nhost = h\n", "malformed"),
        (b"[s]\nkeepalives=1\n", "\"keepalives\""),
        (b"[s]\noptions=-c x=1\n", "options"),
        (b"[s]\nservice=t\n", "belongs into the URL"),
        (b"[s]\nfences=clock\n", "belongs into the URL"),
        (b"[s]\nhost=h\n", "user"),
        (b"[s]\nuser=\xff\n", "UTF-8"),
        (b"[s]\nuser=u\nhost=h\nsslmode=allow", "sslmode"),
    ] {
        let message = asked(text, "");
        assert!(message.contains(said), "{said}: {message}");
    }
    std::fs::remove_file(&file).expect("removed");
    let dsn = format!("service=s servicefile={}", file.display());
    let error = resolved(&dsn, &MadeUp::default()).expect_err("refused");
    assert!(error.message().contains("is not there"), "{error}");
    // What is wrong in the URL is told when it is opened.
    for (bad, said) in [
        ("service=s sslmode=allow servicefile=/f", "sslmode"),
        ("service=s servicefile=/f env=2", "env"),
        ("service=s port=x servicefile=/f", "port"),
        ("host=h user=u servicefile=/f", "service=NAME"),
        ("service=s", "servicefile=PATH"),
    ] {
        let Err(error) = destination(bad, &MadeUp::default()) else {
            panic!("{bad}")
        };
        assert!(error.message().contains(said), "{bad}: {error}");
    }
}

#[test]
fn lines_of_a_password_file_fit_as_in_libpq() {
    let wanted = |host: &str| {
        ["db:1\\x", "5432", "locks", "app"]
            .map(str::to_owned)
            .map(|f| match f.as_str() {
                "db:1\\x" => host.to_owned(),
                _ => f,
            })
    };
    let found = |text: &str, host: &str| {
        let secret = line(text.as_bytes(), &wanted(host));
        secret.map(|s| String::from_utf8(s.bytes().to_vec()).expect("UTF-8"))
    };
    for (text, host, password) in [
        ("h:5432:locks:app:p", "h", Some("p")),
        ("h:5432:locks:app:p\r\n", "h", Some("p")),
        ("*:*:*:*:a:b\\:c\\\\d", "h", Some("a:b:c\\d")),
        ("#h:5432:locks:app:no\nh:*:locks:app:p", "h", Some("p")),
        (
            "h:1:locks:app:no\nh:5432:locks:app:p\nh:*:*:*:late",
            "h",
            Some("p"),
        ),
        ("db\\:1\\\\x:5432:locks:app:p", "db:1\\x", Some("p")),
        ("h:5432:locks:app:", "h", None),
        ("h:5432:locks:app", "h", None),
        ("h:5432:locks:other:p", "h", None),
        ("", "h", None),
    ] {
        assert_eq!(found(text, host).as_deref(), password, "{text:?}");
    }
    let url = PostgresUrl::parse("postgres://app@/locks?host=/var/run/postgresql").expect("a URL");
    assert_eq!(wanted("localhost"), super::wanted(&url, &url.hosts[0]));
    let url = PostgresUrl::parse("postgres://app@/locks?host=/srv/pg").expect("a URL");
    assert_eq!(wanted("/srv/pg"), super::wanted(&url, &url.hosts[0]));
}

#[test]
fn a_password_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("passwords");
    let file = |named| PasswordFile {
        path: path.clone(),
        named,
    };
    let url = PostgresUrl::parse("postgres://app@h/locks").expect("a URL");
    let asked = |named| password(&file(named), &url, &url.hosts[0], &limits());
    let error = asked(true).expect_err("it is not there");
    assert!(error.message().contains("is not there"), "{error}");
    assert!(asked(false).expect("as libpq").is_none());
    std::fs::write(&path, "h:*:*:*:hunter2\n").expect("written");
    for mode in [0o640, 0o604, 0o620, 0o644, 0o666] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("changed");
        for named in [true, false] {
            let error = asked(named).expect_err("others may read it");
            assert_eq!(error.code(), crate::ErrorCode::InvalidArgument);
            assert!(error.message().contains("0600"), "{error}");
        }
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
    let secret = asked(true).expect("read").expect("a line");
    assert_eq!(secret.bytes(), b"hunter2");
}
