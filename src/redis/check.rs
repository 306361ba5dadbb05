//! Whether a server is fit for locks: what `INFO` tells, as warnings.

use crate::redis::resp::Reply;

/// What an operator should know, from the replies to `INFO` and `CONFIG GET appendfsync`. Either may be denied.
pub(crate) fn warnings(info: &Reply, appendfsync: &Reply) -> Vec<String> {
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
        Some("1") => match fsync_policy(appendfsync) {
            Some(b"always") => {}
            Some(_) => found.push(
                "appendfsync is not always: a crash can lose the last second of fence counters, and a fence would be given twice; set appendfsync always"
                    .to_owned(),
            ),
            None => found.push(
                "the Redis user may not read appendfsync: fence counters survive a crash only if it is always".to_owned(),
            ),
        },
        Some(_) => found.push(
            "appendonly is off: a crash loses fence counters, and a fence would be given twice; set appendonly yes and appendfsync always"
                .to_owned(),
        ),
        None => {}
    }
    found
}

fn fsync_policy(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Array(items) => match &items[..] {
            [_, Reply::Bulk(value)] => Some(value),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(info: &str, fsync: Option<&str>) -> String {
        let fsync = match fsync {
            Some(v) => Reply::Array(vec![
                Reply::Bulk(b"appendfsync".to_vec()),
                Reply::Bulk(v.into()),
            ]),
            None => Reply::Error("NOPERM".into()),
        };
        warnings(&Reply::Bulk(info.into()), &fsync).join("\n")
    }

    #[test]
    fn a_safe_server_gives_no_warning_and_any_other_does() {
        let safe = "# Memory\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        assert_eq!(of(safe, Some("always")), "");
        assert!(of(safe, Some("everysec")).contains("appendfsync"));
        assert!(of(safe, None).contains("may not read appendfsync"));
        assert!(of("aof_enabled:0\r\n", Some("always")).contains("appendonly"));
        assert!(
            of("maxmemory_policy:allkeys-lru\r\n", None)
                .contains("allkeys-lru: Redis may evict locks and fence")
        );
        assert!(of("maxmemory_policy:volatile-lru\r\n", None).contains("held"));
        assert!(warnings(&Reply::Error(String::new()), &Reply::Nil)[0].contains("INFO"));
    }
}
