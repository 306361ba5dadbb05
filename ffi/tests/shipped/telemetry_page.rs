//! Runs the Go programs of docs/telemetry.md with the client libraries that they name. Those of Rust are doctests.
//!
//! Needs the module proxy, as the tests of the package need the registry. `ffi/go/testdata/telemetry` says which versions.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::{cgo, root, run, scratch};

/// The programs of the page, in their order.
fn programs() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/telemetry.md")).expect("the page");
    let blocks = page.split("```go\n").skip(1);
    blocks
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

fn output_of(program: &str) -> String {
    let dir = scratch();
    let module = root().join("ffi/go/testdata/telemetry");
    let read = |name: &str| fs::read_to_string(module.join(name)).expect("a file of the module");
    let ours = root().join("ffi/go").display().to_string();
    let text = read("go.mod").replace("=> ../..", &format!("=> {ours:?}"));
    for (name, text) in [
        ("go.mod", &*text),
        ("go.sum", &read("go.sum")),
        ("main.go", program),
    ] {
        fs::write(dir.path().join(name), text).expect("a file");
    }
    let mut go = Command::new("go");
    go.current_dir(dir.path())
        .args(["run", "-mod=mod", "-tags=syncguard_nopkgconfig", "."])
        .env("GOTOOLCHAIN", "local");
    cgo(&mut go);
    // A cold cache is filled from the proxy.
    let output = run(&mut go, Duration::from_secs(600));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_go_programs_tell_what_the_page_says() {
    let programs = programs();
    let [prometheus, opentelemetry, traces] = &*programs else {
        panic!("{} Go programs", programs.len());
    };
    let text = output_of(prometheus);
    for line in [
        "syncguard_operation_seconds_count{backend=\"sqlite\",operation=\"acquire\",outcome=\"ok\"} 1\n",
        "syncguard_operation_seconds_count{backend=\"sqlite\",operation=\"wait\",outcome=\"ok\"} 1\n",
        "syncguard_operation_seconds_count{backend=\"sqlite\",operation=\"release\",outcome=\"ok\"} 1\n",
        "syncguard_held_seconds_count{backend=\"sqlite\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    // The SDK gives the points in the order of a map.
    let text = output_of(opentelemetry);
    let mut told: Vec<_> = text.lines().collect();
    told.sort_unstable();
    let expected = ["acquire", "release", "wait"]
        .map(|operation| format!("syncguard.operation.duration {operation} 1"));
    assert_eq!(told, expected);
    assert_eq!(output_of(traces), "lock wait Unset\nlock held Unset\n");
}
