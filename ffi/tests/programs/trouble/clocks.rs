//! Tests C programs with a wall clock that is wrong, on their own machine or at the store.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::support::common::postgres::Server;
use crate::support::common::redis::RedisServer;

const YEARS: [i64; 2] = [86_400, 4_102_444_800];

/// A clock to preload, and the file that moves it.
pub struct Clock {
    dir: tempfile::TempDir,
}

impl Clock {
    pub fn build() -> Self {
        let clock = Self { dir: scratch() };
        let source = clock.dir.path().join("wall_clock.c");
        let text = include_str!("../../../../tests/support/wall_clock.c");
        std::fs::write(&source, text).expect("the source");
        succeed(
            Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o"])
                .args([&clock.shim(), &source]),
            "the clock",
        );
        clock.set(0);
        clock
    }

    fn shim(&self) -> PathBuf {
        self.dir.path().join("wall_clock.so")
    }

    fn offset(&self) -> PathBuf {
        self.dir.path().join("offset")
    }

    pub fn set(&self, seconds: i64) {
        // In place: the program has the file mapped, and a look at one that is cut short would end it.
        std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.offset())
            .and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0))
            .expect("the offset");
    }

    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_PRELOAD", self.shim()),
            ("WALL_CLOCK_OFFSET", self.offset()),
        ]
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs() as i64
}

fn lock_file(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("locks.db").display())
}

#[test]
fn row_59_the_wall_clock_steps_during_a_hold() {
    let dir = scratch();
    let (server, pg) = (RedisServer::start(&[]), Server::shared());
    for url in [lock_file(dir.path()), server.url(), pg.url()] {
        let clock = Clock::build();
        succeed(
            plain("clock")
                .arg(&url)
                .arg("steps_during_a_hold")
                .envs(clock.env()),
            &url,
        );
    }
}

#[track_caller]
fn lives_in(year: i64, url: &str, clock: Option<&Clock>) {
    let mut command = plain("clock");
    command
        .arg(url)
        .arg("a_store_in_another_age")
        .env("STORE_SECONDS", year.to_string());
    if let Some(clock) = clock {
        command.envs(clock.env());
    }
    succeed(&mut command, url);
}

#[test]
fn row_64_a_store_in_another_age() {
    let mut pg = Server::start(&[]);
    pg.take_clock();
    for year in YEARS {
        let clock = Clock::build();
        clock.set(year - now());
        // A lock file's clock is that of the program.
        let dir = scratch();
        lives_in(year, &lock_file(dir.path()), Some(&clock));
        let env = clock.env().map(|(k, v)| (k, v.display().to_string()));
        let server =
            RedisServer::start_env(&env.each_ref().map(|(name, value)| (*name, value.as_str())));
        lives_in(year, &server.url(), None);
        pg.set_clock(year - now());
        lives_in(year, &pg.url(), None);
    }
}
