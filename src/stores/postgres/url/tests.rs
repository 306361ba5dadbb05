//! URLs and keyword strings, good and bad.

use super::*;

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp {
        host: host.to_owned(),
        port,
    }
}

#[test]
fn urls_are_read() {
    let url = PostgresUrl::parse("postgres://app:p%40s@s@h1:6001,[::1]:6002,h3/locks?application_name=x&connect_timeout=3&target_session_attrs=primary&sslmode=disable").expect("a URL");
    assert_eq!(
        url.hosts,
        [tcp("h1", 6001), tcp("::1", 6002), tcp("h3", 5432)]
    );
    assert_eq!(
        (url.user.as_str(), url.password.as_deref()),
        ("app", Some("p@s@s"))
    );
    assert_eq!(
        (url.database.as_str(), url.application.as_str()),
        ("locks", "x")
    );
    assert_eq!(url.connect_timeout, Some(Duration::from_secs(3)));
    assert!(url.writable_only && url.ssl == SslMode::Disable);
}

#[test]
fn unix_sockets_are_directories() {
    for text in [
        "postgres://app@/db?host=/run/pg&port=6000",
        "postgresql://app@%2Frun%2Fpg:6000/db",
        "host=/run/pg port=6000 user=app dbname=db",
        "host = '/run/pg' port=6000 user='a\\pp' dbname = db ",
    ] {
        let url = PostgresUrl::parse(text).expect("a DSN");
        assert_eq!(url.hosts, [Endpoint::Unix("/run/pg/.s.PGSQL.6000".into())]);
        assert_eq!((url.user.as_str(), url.database.as_str()), ("app", "db"));
    }
}

#[test]
fn what_is_wrong_is_named_and_secrets_are_not() {
    for (text, said) in [
        ("postgres://", "user"),
        ("postgres://app:hunter2@/db", "host"),
        ("postgres://app:hunter2@h:65536/db", "port"),
        ("postgres://app:hunter2@h:0/db", "port"),
        ("postgres://app:hunter2@h:x/db", "port"),
        ("postgres://app:hunter2@h:/db", "port"),
        ("postgres://app:hunter2@h/db?colour=red", "colour"),
        ("postgres://app:hunter2@h/db?options=-c", "options"),
        ("postgres://app:hunter2@h/db?sslmode=allow", "sslmode"),
        ("postgres://app:hunter2@h/db?sslmode", "no value"),
        ("postgres://app:hunter2%00@h/db", "NUL"),
        ("postgres://app:hunter2%zz@h/db", "%25"),
        ("postgres://app:hunter2%ff@h/db", "UTF-8"),
        ("postgres://app:hunter2@h,/db", "host"),
        ("postgres://app:hunter2@[::1/db", "host"),
        ("host=h user=app password='hunter2", "quoted"),
        ("host=h user=app password=hunter2 hunter2", "name=value"),
        ("postgres://app:hunter2@h/db?hunter2=x", "malformed"),
        ("postgres://app:hunter2@h/db?pooler=maybe", "pooler"),
        (
            "postgres://app:hunter2@h/db?target_session_attrs=standby",
            "target_session_attrs",
        ),
        (
            "postgres://app:hunter2@h/db?connect_timeout=soon",
            "connect_timeout",
        ),
        (
            "postgres://app:hunter2@/db?host=/tmp&sslmode=require",
            "unix",
        ),
        ("mysql://app:hunter2@h/db", "not a Postgres URL"),
        ("postgres://app:a?hunter=2@h/db", "%3F"),
    ] {
        let error = PostgresUrl::parse(text).expect_err(text);
        assert_eq!(error.code(), crate::ErrorCode::InvalidArgument);
        assert!(error.message().contains(said), "{text}: {error}");
        assert!(!error.to_string().contains("hunter"), "{error}");
    }
}

#[test]
fn a_client_takes_urls_and_keywords() {
    let options = crate::ClientOptions::new();
    for good in [
        "postgres://app@h/db",
        "postgresql://app@h",
        "host=h user=app",
        "user = app host = '/run'",
    ] {
        assert!(crate::stores::open::open(good, &options).is_ok(), "{good}");
    }
    for bad in [
        "postgres:",
        "postgres://",
        "host=h",
        "=x",
        "Host=h user=app",
    ] {
        let code = crate::stores::open::open(bad, &options)
            .err()
            .map(|e| e.code());
        assert_eq!(code, Some(crate::ErrorCode::InvalidArgument), "{bad}");
    }
}

#[test]
fn every_option_that_the_error_lists_is_taken() {
    for name in OPTIONS {
        assert!(
            RawOptions::default().set(name, "1".to_owned()).is_ok(),
            "{name}"
        );
    }
}
