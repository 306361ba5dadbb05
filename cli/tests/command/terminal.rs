//! Tests the command on a terminal: the terminal is the command's while it runs, Ctrl-C and Ctrl-Z reach it, and a wait is shown.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use syncguard::{Client, LockOptions};

use crate::support::common::redis::RedisServer;
use crate::support::{end, eventually, text_of};

/// A session with a terminal of its own, and what was written to it.
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    pub child: Child,
}

impl Terminal {
    pub fn start(url: &str, args: &[&str]) -> Self {
        Self::start_program(url, env!("CARGO_BIN_EXE_syncguard"), args, None)
    }

    pub fn start_program(url: &str, program: &str, args: &[&str], size: Option<Winsize>) -> Self {
        let pty = openpty(&size, None).expect("a terminal");
        let side = || OwnedFd::try_clone(&pty.slave).expect("a descriptor");
        let own = Path::new(env!("CARGO_BIN_EXE_syncguard"));
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = own.parent().expect("a folder").display();
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", program])
            .args(args)
            .env("SYNCGUARD_URL", url)
            .env("PATH", format!("{folder}:{path}"))
            .env("TERM", "dumb")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("setsid");
        let mut output = File::from(pty.master.try_clone().expect("a descriptor"));
        let screen = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end of the terminal.
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
                written.lock().expect("a mutex").push_str(&text);
            }
        });
        Self {
            keyboard: File::from(pty.master),
            screen,
            child,
        }
    }

    pub fn types(&mut self, text: &str) {
        self.keyboard
            .write_all(text.as_bytes())
            .expect("a terminal");
    }

    #[track_caller]
    pub fn shows(&self, text: &str) {
        eventually(text, || self.screen.lock().expect("a mutex").contains(text));
    }
}

#[test]
fn the_command_has_the_terminal_and_control_c_reaches_it() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let caught = dir.path().join("caught");
    let script = format!(
        "trap 'echo got > {}; exit 6' INT; read line; echo read $line; while :; do sleep 0.05; done",
        caught.display()
    );
    let mut terminal = Terminal::start(&server.url(), &["run", "k", "--", "bash", "-c", &script]);
    terminal.types("words\n");
    terminal.shows("read words");
    terminal.types("\x03");
    assert_eq!(text_of(&caught), "got");
    assert_eq!(end(terminal.child).0, Some(6));
}

#[test]
fn a_wait_shows_the_holder_and_release_asks() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let options = LockOptions::new().holder("build-7");
    let guard = client.lock_with("k", &options).expect("a lock");
    let waiter = Terminal::start(
        &server.url(),
        &["run", "-w", "10m", "k", "--", "echo", "mine now"],
    );
    waiter.shows("waiting for k: held by build-7 for ");
    waiter.shows(", at most 9 min");
    // An answer that is not yes changes nothing.
    let mut asked = Terminal::start(&server.url(), &["release", "k", "--force"]);
    asked.shows("Take the lock k away from build-7");
    asked.types("n\n");
    assert_eq!(end(asked.child).0, Some(64));
    assert!(!guard.is_lost() && client.owns(*guard.lock_id()).expect("a look"));
    let mut asked = Terminal::start(&server.url(), &["release", "k", "--force"]);
    asked.shows("[y/N]");
    asked.types("y\n");
    asked.shows("released; it was held by build-7");
    assert_eq!(end(asked.child).0, Some(0));
    waiter.shows("mine now");
    assert_eq!(end(waiter.child).0, Some(0));
}

#[test]
fn a_table_is_redrawn_in_place() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let mut watch = Terminal::start(&server.url(), &["watch", "--every", "50ms"]);
    watch.shows("KEY  HOLDER");
    let _guard = client.lock("job").expect("a lock");
    watch.shows("\x1b[1A\r\x1b[JKEY");
    watch.shows("job  ");
    watch.child.kill().expect("a process");
    end(watch.child);
}

#[test]
fn a_table_fits_on_the_terminal() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let lock = |n| client.lock(format!("job-{n:02}-{}", "x".repeat(60)));
    let _guards: Vec<_> = (0..20).map(lock).collect();
    let size = Winsize {
        ws_row: 10,
        ws_col: 40,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let own = env!("CARGO_BIN_EXE_syncguard");
    let mut watch = Terminal::start_program(
        &server.url(),
        own,
        &["watch", "--every", "50ms"],
        Some(size),
    );
    watch.shows("… 13 more");
    // Nine lines were drawn, and the cursor goes back over all of them.
    watch.shows("\x1b[9A\r\x1b[JKEY");
    let screen = watch.screen.lock().expect("a mutex").clone();
    let rows = screen.lines().filter(|line| line.starts_with("job-"));
    assert!(rows.clone().count() >= 7);
    for row in rows {
        assert!(row.trim_end().chars().count() < 40, "{row}");
    }
    watch.child.kill().expect("a process");
    end(watch.child);
}
