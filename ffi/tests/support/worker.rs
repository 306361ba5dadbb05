//! The examples' worker, in whatever language.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rust_syncguard::{Backend, Client};

/// While one works a second does not start; when its lock is taken away it stops.
pub fn stops_when_robbed(program: &Path, url: &str) {
    let mut long = Command::new(program)
        .args([url, "100000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker");
    let mut lines = BufReader::new(long.stdout.take().expect("its output")).lines();
    let first = lines.next().expect("a line").expect("a text");
    assert!(first.starts_with("working with fence"), "{first}");
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).last());
    let second = Command::new(program)
        .args([url, "2"])
        .output()
        .expect("a second worker");
    assert_eq!(second.status.code(), Some(2), "{second:?}");

    let client = Client::open(url).expect("a client");
    let found = client.get_by_key_raw("nightly-report").expect("a look");
    let lock_id = found.expect("the worker's lock").lock_id;
    let _ = Backend::release(&client, &lock_id, None).expect("a release");
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = long.try_wait().expect("a child") {
            break status;
        }
        if Instant::now() >= end {
            let _ = long.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(
        status.code(),
        Some(3),
        "{}: {:?}",
        program.display(),
        rest.join()
    );
}
