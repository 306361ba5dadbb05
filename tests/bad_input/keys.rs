//! Tests keys that are wrong, long or unusual.

use super::*;
use syncguard::{KeySpace, LockId};

#[test]
fn row_01_an_empty_key() {
    for store in stores() {
        refused(store.client.lock(""));
        refused(store.client.try_lock(""));
        refused(store.client.get_by_key(""));
        refused(store.client.with_lock("", |_| panic!("the work was run")));
    }
}

#[test]
fn row_02_a_key_of_512_bytes_and_one_of_513() {
    for store in stores() {
        let longest = "k".repeat(512);
        assert_eq!(take(&store.client, &longest).key().as_str(), longest);
        refused(store.client.lock("k".repeat(513)));
        // 513 bytes as given, 512 after NFC.
        let shrinks = format!("{}e\u{301}", "k".repeat(510));
        assert_eq!(shrinks.len(), 513);
        assert_eq!(take(&store.client, &shrinks).key().as_str().len(), 512);
    }
}

#[test]
fn row_03_bytes_count_and_not_characters() {
    refused(Store::memory().client.lock("あ".repeat(200)));
}

#[test]
fn row_04_nfc_equal_keys_are_one_lock() {
    for store in stores() {
        let guard = take(&store.client, "e\u{301}");
        assert_eq!(guard.key().as_str(), "\u{e9}");
        assert!(
            store
                .client
                .try_lock("\u{e9}")
                .expect("an answer")
                .is_none()
        );
    }
}

#[test]
fn row_05_a_key_that_grows_under_nfc() {
    // U+0958 is never composed: three bytes become six.
    refused(Key::new(&"\u{958}".repeat(86)));
    assert_eq!(key(&"\u{958}".repeat(85)).as_str().len(), 510);
}

#[test]
fn row_06_nul_is_refused_and_cuts_nothing() {
    for store in stores() {
        let _short = take(&store.client, "a");
        for name in ["\0", "a\0", "a\0b", "\0a"] {
            refused(store.client.lock(name));
            refused(store.client.get_by_key_raw(name));
        }
    }
}

/// Every one of them is a lock of its own and comes back as it was given.
fn are_plain_data(names: &[&str]) {
    for store in stores() {
        let client = &store.client;
        let guards: Vec<_> = names.iter().map(|name| take(client, name)).collect();
        for (name, guard) in names.iter().zip(&guards) {
            assert_eq!(guard.fence().get(), 1, "{name:?} on {}", store.kind);
            let found = client.get_by_key_raw(name).expect("an answer");
            let found = found.expect("a live lock");
            assert_eq!(
                (found.key.as_str(), found.lock_id),
                (*name, *guard.lock_id())
            );
        }
        for guard in &guards {
            assert!(guard.release().expect("an answer").is_released());
        }
        assert!(names.iter().all(|name| !is_locked(client, name)));
    }
}

#[test]
fn row_08_control_characters_quotes_emoji_and_right_to_left() {
    are_plain_data(&[
        "\n",
        "\u{1}\u{1b}[31m",
        "\u{7f}",
        "\r\n*1\r\n",
        "\"",
        "'",
        "\\",
        "\\x00",
        "👩\u{200d}🚀",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "\u{202e}abc",
    ]);
}

#[test]
fn row_09_keys_in_the_reserved_namespace() {
    let ours = LockId::random().expect("randomness");
    let index = format!("id:{}", ours.as_str());
    let reserved = ["fence:syncguard:foo", index.as_str()];
    let redis = KeySpace::redis("syncguard").expect("a legal prefix");
    for name in reserved {
        let error = refused(redis.lock(&key(name)));
        assert!(error.message().contains("namespace"), "{error}");
        assert!(!error.message().contains(name));
    }
    for free in ["fence:other:foo", "fence", "id:42", "fence:syncguardian:x"] {
        assert!(redis.lock(&key(free)).is_ok(), "{free}");
    }
    let bare = KeySpace::redis("").expect("a legal prefix");
    refused(bare.lock(&key("fence:anything")));
    // In tables the counters live elsewhere.
    are_plain_data(&[reserved[0], reserved[1], "foo", "fence:foo"]);
}

#[test]
fn row_10_a_key_that_is_the_hash_of_another_one_shares_its_lock() {
    let prefix = "p".repeat(700);
    let redis = KeySpace::redis(&prefix).expect("a legal prefix");
    let long = redis.lock(&key(&"k".repeat(512))).expect("a name");
    let hash = long
        .strip_prefix(&format!("{prefix}:"))
        .expect("the prefix");
    assert_eq!(hash.len(), 22);
    // One name, and so one lock with one holder.
    assert_eq!(redis.lock(&key(hash)).expect("a name"), long);
    // Tables can hold every key.
    let table = KeySpace::table();
    assert_eq!(
        table.lock(&key(&"k".repeat(512))).expect("a name").len(),
        512
    );
}

#[test]
fn row_11_injections_are_plain_data() {
    are_plain_data(&[
        "'; DROP TABLE syncguard_locks; --",
        "$1",
        "?1",
        "%s",
        "%n",
        "${x}",
    ]);
}

#[test]
fn row_12_case_and_trailing_spaces_count() {
    are_plain_data(&["job", "Job", "JOB", "job ", " job", "job\t"]);
}

#[test]
fn row_13_emoji_variants_and_unassigned_code_points() {
    are_plain_data(&[
        "❤",
        "❤\u{fe0f}",
        "❤\u{fe0e}",
        "\u{378}",
        "\u{10fffe}",
        "\u{e000}",
    ]);
}
