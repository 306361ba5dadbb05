//! Whether a server is fit for locks: what `INFO` and `CONFIG GET` tell, as warnings. It uses `resp` alone.

use crate::stores::redis::resp::Reply;

/// What an operator should know, from the replies to `INFO` and `CONFIG GET *appendfsync*`. Either may be denied; `INFO` tells
/// nothing about the settings of `CONFIG`.
pub(crate) fn warnings(info: &Reply, config: &Reply) -> Vec<String> {
    let Reply::Bulk(info) = info else {
        return vec![
            "the Redis user may not run INFO: whether keys are evicted and whether fences survive a crash was not checked"
                .to_owned(),
        ];
    };
    let info = String::from_utf8_lossy(info);
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let mut found = Vec::new();
    if let Some(policy) = field("maxmemory_policy").filter(|p| *p != "noeviction") {
        let lost = if policy.starts_with("allkeys") {
            "locks and fence counters"
        } else {
            "locks that are held"
        };
        // Only the words Redis knows are repeated.
        let shown = policy
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'-')
            .then_some(policy);
        found.push(format!(
            "maxmemory-policy is {}: Redis may evict {lost}; set it to noeviction",
            shown.unwrap_or("not noeviction")
        ));
    }
    match field("aof_enabled") {
        Some("1") => found.extend(sync_warning(
            setting(config, b"appendfsync"),
            setting(config, b"no-appendfsync-on-rewrite"),
        )),
        Some(_) => found.push(
            "appendonly is off: a crash loses fence counters, and a fence would be given twice; set appendonly yes and appendfsync always"
                .to_owned(),
        ),
        None => {}
    }
    found
}

/// The version in a reply to `INFO`, if the user may see it.
pub(crate) fn version(info: &Reply) -> Option<String> {
    let Reply::Bulk(info) = info else {
        return None;
    };
    let info = String::from_utf8_lossy(info);
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .filter(|text| text.len() <= 40 && text.bytes().all(|b| b.is_ascii_graphic()))
    };
    // Valkey says both: its own version, and that of the Redis that it is like.
    match field("valkey_version:") {
        Some(version) => Some(format!("{version} of Valkey")),
        None => field("redis_version:").map(str::to_owned),
    }
}

/// What two settings mean for fence counters; `None` where they could not be seen.
fn sync_warning(policy: Option<&[u8]>, pauses: Option<&[u8]>) -> Option<String> {
    let text = match (policy, pauses) {
        (Some(b"always"), Some(b"no")) => return None,
        (Some(b"always"), Some(_)) => {
            "no-appendfsync-on-rewrite is on: during a rewrite of the log or a snapshot Redis does not sync, a crash then loses fence counters, and a fence would be given twice; set no-appendfsync-on-rewrite no"
        }
        (Some(b"always"), None) => {
            "the Redis user may not read no-appendfsync-on-rewrite (CONFIG GET): fence counters survive a crash only if it is no"
        }
        (Some(_), _) => {
            "appendfsync is not always: a crash can lose the last second of fence counters, and a fence would be given twice; set appendfsync always and no-appendfsync-on-rewrite no"
        }
        (None, Some(b"no")) => {
            "the Redis user may not read appendfsync (CONFIG GET): fence counters survive a crash only if it is always"
        }
        (None, _) => {
            "the Redis user may not read appendfsync and no-appendfsync-on-rewrite (CONFIG GET): fence counters survive a crash only if they are always and no"
        }
    };
    Some(text.to_owned())
}

/// The value of a setting in a reply to `CONFIG GET`.
fn setting<'a>(reply: &'a Reply, name: &[u8]) -> Option<&'a [u8]> {
    let Reply::Array(items) = reply else {
        return None;
    };
    items.chunks_exact(2).find_map(|pair| match pair {
        [Reply::Bulk(key), Reply::Bulk(value)] if key == name => Some(&value[..]),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &[(&str, &str)]) -> Reply {
        let bulk = |text: &str| Reply::Bulk(text.into());
        Reply::Array(
            settings
                .iter()
                .flat_map(|(name, value)| [bulk(name), bulk(value)])
                .collect(),
        )
    }

    fn with(info: &str, config: &Reply) -> String {
        warnings(&Reply::Bulk(info.into()), config).join("\n")
    }

    fn of(info: &str, fsync: Option<&str>) -> String {
        let config = match fsync {
            Some(v) => config(&[("no-appendfsync-on-rewrite", "no"), ("appendfsync", v)]),
            None => Reply::Error("NOPERM".into()),
        };
        with(info, &config)
    }

    #[test]
    fn a_version_is_read_from_info() {
        let of = |info: &str| version(&Reply::Bulk(info.into()));
        let redis = "# Server\r\nredis_version:7.2.4\r\nredis_mode:standalone\r\n";
        assert_eq!(of(redis).as_deref(), Some("7.2.4"));
        let valkey = format!("{redis}valkey_version:8.0.1\r\n");
        assert_eq!(of(&valkey).as_deref(), Some("8.0.1 of Valkey"));
        assert_eq!(of("redis_version:\u{1b}[2J\r\n"), None);
        assert_eq!(version(&Reply::Error("NOPERM".into())), None);
    }

    #[test]
    fn a_safe_server_gives_no_warning_and_any_other_does() {
        let safe = "# Memory\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        assert_eq!(of(safe, Some("always")), "");
        assert!(of(safe, Some("everysec")).contains("appendfsync"));
        assert!(of(safe, None).contains("may not read appendfsync and no-"));
        let (policy, pauses) = ("appendfsync", "no-appendfsync-on-rewrite");
        for (settings, said) in [
            (&[(policy, "always"), (pauses, "yes")][..], "rewrite is on"),
            (&[(policy, "always")], "may not read no-append"),
            (&[(pauses, "no")], "may not read appendfsync (CONFIG"),
            (&[(pauses, "yes")], "may not read appendfsync and no-"),
            (&[], "may not read appendfsync and no-"),
        ] {
            let told = with(safe, &config(settings));
            assert!(told.contains(said), "{settings:?}: {told}");
        }
        assert!(of("aof_enabled:0\r\n", Some("always")).contains("appendonly"));
        assert!(
            of("maxmemory_policy:allkeys-lru\r\n", None)
                .contains("allkeys-lru: Redis may evict locks and fence")
        );
        assert!(of("maxmemory_policy:volatile-lru\r\n", None).contains("held"));
        assert!(warnings(&Reply::Error(String::new()), &Reply::Nil)[0].contains("INFO"));
    }
}
