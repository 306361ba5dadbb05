//! Limits the time of a whole test program: a test that hangs must fail, and say where. Every program has this module.
//!
//! It begins before `main`, because the test harness has no place for it.

use std::time::Duration;

/// Many times what the slowest program takes on two busy cores. `SYNCGUARD_TEST_LIMIT` (seconds) is another one.
const LIMIT: Duration = Duration::from_secs(30 * 60);

#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // Another process of a test ends with that test, and counts its threads.
    if std::env::var_os("SYNCGUARD_TEST_STAGE").is_some() {
        return;
    }
    let given = std::env::var("SYNCGUARD_TEST_LIMIT").ok();
    let limit = given
        .and_then(|seconds| seconds.parse().ok())
        .map_or(LIMIT, Duration::from_secs);
    std::thread::Builder::new()
        .name("test-limit".to_owned())
        .spawn(move || {
            std::thread::sleep(limit);
            eprintln!(
                "\nthe test program hangs: it has run for {limit:?} and is aborted. Its threads, which have the first 15 \
                 letters of their tests' names: {}",
                threads().join(", ")
            );
            std::process::abort();
        })
        .expect("a thread for the limit");
}

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}
