//! Tests the conversions of the value types, and that none of them prints a secret.

use std::time::Duration;

use syncguard::{ErrorCode, Fence, Key, LockId, Ttl, hash_key};

#[test]
fn a_key_comes_from_every_kind_of_text() {
    let key = Key::new("caf\u{e9}").expect("a key");
    let decomposed = "cafe\u{301}";
    assert_eq!(decomposed.parse::<Key>().expect("a key"), key);
    assert_eq!(Key::try_from(decomposed).expect("a key"), key);
    assert_eq!(Key::try_from(decomposed.to_owned()).expect("a key"), key);
    let text: &str = key.as_ref();
    assert_eq!(text, "caf\u{e9}");
    let bad = [
        "".parse::<Key>(),
        Key::try_from("a\0b"),
        Key::try_from("x".repeat(513)),
    ];
    for error in bad.map(|bad| bad.expect_err("no key")) {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
}

#[test]
fn a_lock_id_comes_from_its_text_only() {
    let id = LockId::random().expect("an id");
    assert_eq!(id.as_str().parse::<LockId>().expect("an id"), id);
    assert_eq!(LockId::try_from(id.as_str()).expect("an id"), id);
    let error = "secret-but-short".parse::<LockId>().expect_err("no id");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(!error.to_string().contains("secret-but-short"));
    assert!(LockId::try_from("").is_err());
}

#[test]
fn a_fence_goes_into_a_column_and_back() {
    for n in [0, 1, 42, 999_999_999_999_999] {
        let fence = Fence::new(n).expect("a fence");
        let (column, number) = (i64::from(fence), u64::from(fence));
        assert_eq!(number, n);
        assert_eq!(Fence::try_from(column).expect("a fence"), fence);
        assert_eq!(Fence::try_from(number).expect("a fence"), fence);
        assert_eq!(fence.to_string().parse::<Fence>().expect("a fence"), fence);
        assert_eq!(
            Fence::try_from(fence.to_string().as_str()).expect("a fence"),
            fence
        );
    }
    for bad in [
        Fence::try_from(-1_i64),
        Fence::try_from(i64::MIN),
        Fence::try_from(i64::MAX),
        Fence::try_from(u64::MAX),
        Fence::try_from(1_000_000_000_000_000_u64),
        "42".parse(),
        "-00000000000042".parse(),
    ] {
        assert_eq!(
            bad.expect_err("no fence").code(),
            ErrorCode::InvalidArgument
        );
    }
}

#[test]
fn a_ttl_comes_from_a_duration_and_becomes_one() {
    let ttl = Ttl::try_from(Duration::from_micros(1_500)).expect("a ttl");
    assert_eq!(Duration::from(ttl), Duration::from_millis(2));
    for bad in [Duration::ZERO, Duration::MAX] {
        let error = Ttl::try_from(bad).expect_err("no ttl");
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}

#[test]
fn what_is_shown_of_a_key_and_an_id_is_the_hash_for_logs() {
    let key = Key::new("customer:Jane").expect("a key");
    assert_eq!(key.log_hash(), hash_key("customer:Jane"));
    assert_eq!(format!("{key:?}"), format!("Key(#{})", key.log_hash()));
    let id = LockId::random().expect("an id");
    assert_eq!(id.log_hash(), hash_key(id.as_str()));
    assert_eq!(format!("{id:?}"), format!("LockId(#{})", id.log_hash()));
}
