//! Which URLs of Redis are accepted, and what they name.

use super::*;
use crate::types::error::ErrorCode;

fn tcp(url: &str) -> (String, u16, Login) {
    let parsed = RedisUrl::parse(url).expect("a good URL");
    match parsed.target {
        RedisTarget::One(Endpoint::Tcp { host, port }) => (host, port, parsed.login),
        _ => panic!("a host was expected"),
    }
}

fn login(user: Option<&str>, password: Option<&str>, database: u32) -> Login {
    Login {
        user: user.map(str::to_owned),
        password: password.map(str::to_owned),
        database,
    }
}

#[test]
fn good_urls_say_what_they_say() {
    let plain = ("h".to_owned(), 6379, Login::default());
    assert!(tcp("redis://h") == plain && tcp("redis://h/") == plain);
    assert!(tcp("redis://h:1/7") == ("h".into(), 1, login(None, None, 7)));
    assert!(tcp("redis://:p@h?db=3").2 == login(None, Some("p"), 3));
    assert!(tcp("redis://u:p%40%3A%2f@h").2 == login(Some("u"), Some("p@:/"), 0));
    assert!(tcp("redis://u:a@b:c@h").2 == login(Some("u"), Some("a@b:c"), 0));
    assert!(tcp("redis://u@h").2 == login(Some("u"), Some(""), 0));
    assert!(tcp("redis://[::1]:7000").0 == "::1" && tcp("redis://[::1]").1 == 6379);
    assert!(RedisUrl::parse("rediss://h").is_ok_and(|u| u.tls));
    let unix =
        RedisUrl::parse("redis+unix:///run/a%20b.sock?db=2&user=u&pass=p%26").expect("a good URL");
    assert!(
        matches!(unix.target, RedisTarget::One(Endpoint::Unix(p)) if p.as_os_str() == "/run/a b.sock")
    );
    assert!(unix.login == login(Some("u"), Some("p&"), 2));
}

fn node(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp {
        host: host.to_owned(),
        port,
    }
}

#[test]
fn urls_of_several_servers_say_what_they_say() {
    let url = RedisUrl::parse(
        "rediss+sentinel://u:p@a,[::1]:7/my%2Fname/3?sentinel_user=s&sentinel_password=q",
    )
    .expect("a good URL");
    assert!(url.tls && url.login == login(Some("u"), Some("p"), 3));
    let RedisTarget::Sentinel {
        sentinels,
        master,
        login: theirs,
    } = url.target
    else {
        panic!("sentinels were expected")
    };
    assert_eq!(sentinels, [node("a", 26379), node("::1", 7)]);
    assert!(master == "my/name" && theirs == login(Some("s"), Some("q"), 0));
    let url = RedisUrl::parse("redis+cluster://:p@a:1,b/0").expect("a good URL");
    assert!(!url.tls && url.login == login(None, Some("p"), 0));
    assert!(
        matches!(url.target, RedisTarget::Cluster(nodes) if nodes == [node("a", 1), node("b", 6379)])
    );
}

#[test]
fn bad_urls_are_refused_without_their_secrets() {
    let long = format!("redis+unix:///{}", "s3cret".repeat(30));
    for url in [
        "redis:",
        "redis://",
        "redis:///0",
        "redis://h:",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:+1",
        "redis://h:s3cret",
        "redis://::1",
        "redis://[::1",
        "redis://[::1]x",
        "redis://u:s3cret@",
        "redis://u:s3cret%@h",
        "redis://u:s3cret%0g@h",
        "redis://u:s3cret%00@h",
        "redis://u:s3cret%ff@h",
        "redis://u:s3/cret@h",
        "redis://u:s3?s3cret@h",
        "redis://u:s3#s3cret@h",
        "redis://u:s3cret @h",
        "redis://u:s3cret@h/s3cret",
        "redis://u:s3cret@h/1/2",
        "redis://u:s3cret@h/1?db=2",
        "redis://u:s3cret@h/1?db=0",
        "redis://u:s3cret@h/0?db=1",
        "redis://u:s3cret@h?db=0&db=1",
        "redis://u:s3cret@h/4294967296",
        "redis://u:s3cret@a,b",
        "redis://u:s3cret@h?db=s3cret",
        "redis://u:s3cret@h?timeout=s3cret",
        "redis+unix://h/s3cret",
        "redis+unix://",
        "redis+unix:///",
        "redis+unix:///x%00s3cret",
        "redis+unix://u:p@/x?pass=s3cret",
        "redis+sentinel://u:s3cret@a,b",
        "redis+sentinel://u:s3cret@a,b/",
        "redis+sentinel://u:s3cret@a,/name",
        "redis+sentinel://u:s3cret@a/name/s3cret",
        "redis+sentinel://u:s3cret@a/name/1/2",
        "redis+sentinel://u:s3cret@a/name?db=1",
        "redis+sentinel://a/name?sentinel_password=s3cret&sentinel_password=s3cret",
        "redis+sentinel://u:s3cret@a,u:s3cret@b/name",
        "redis+cluster://u:s3cret@a,u:s3cret@b",
        "redis+cluster://u:s3cret@",
        "redis+cluster://u:s3cret@a,,b",
        "redis+cluster://u:s3cret@a/1",
        "redis+cluster://u:s3cret@a?db=0",
        &long,
        "s3cret://h",
    ] {
        let error = RedisUrl::parse(url).err().expect(url);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}");
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains("s3cret") && !shown.contains("cret@"),
            "{shown}"
        );
    }
    let error = RedisUrl::parse("redis://h?timeout=1").err().expect("bad");
    assert!(error.message().contains("\"timeout\""));
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_that_was_not_built_is_refused_by_name() {
    let options = crate::ClientOptions::new();
    let error = crate::RedisBackend::open("rediss://h", &options).expect_err("not built");
    assert!(error.message().contains("tls"));
}

#[test]
fn every_scheme_says_where_fences_come_from() {
    for url in [
        "redis://h/",
        "rediss://h/",
        "redis+sentinel://a,b/main",
        "rediss+sentinel://a/main",
        "redis+cluster://a,b",
        "rediss+cluster://a",
        "redis+unix:///run/redis.sock",
    ] {
        let said =
            |more: &str| RedisUrl::parse(&format!("{url}{more}")).map(|parsed| parsed.fences);
        assert_eq!(said("").expect(url), None);
        assert_eq!(said("?fences=clock").expect(url), Some(FenceSource::Clock));
        assert_eq!(
            said("?fences=counter").expect(url),
            Some(FenceSource::Counter)
        );
        for bad in [
            "?fences=",
            "?fences=sun",
            "?fences=clock&fences=clock",
            "?fence=clock",
        ] {
            let error = said(bad).expect_err(bad);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}{bad}");
        }
    }
}
