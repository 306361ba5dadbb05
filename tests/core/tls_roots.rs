//! Tests files of TLS roots that are pipes, have no end, or are longer than any list of roots: a call ends within its limit.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::process::{self, Stage, say};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use syncguard::{Call, Client, ClientOptions, ErrorCode, Key};

/// The limit of a call. What is refused is refused sooner.
const LIMIT: Duration = Duration::from_secs(8);
/// Less than a test waits for a stage, more than a busy machine makes of [`LIMIT`].
const FAR_TOO_LONG: Duration = Duration::from_secs(30);

pub const STAGES: &[process::Entry] = &[("call with roots", call_with_roots)];

fn call_with_roots(_: &Path) {
    for (scheme, rest) in [("rediss", ""), ("postgres", "/db?sslmode=verify-full")] {
        let url = format!("{scheme}://u:p@127.0.0.1:{}{rest}", server());
        refused(&url, &ClientOptions::new());
    }
    say("refused");
}

/// Accepts connections, agrees to TLS as Postgres does, and says nothing more.
fn server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((mut tcp, _)) = listener.accept() {
            let mut request = [0; 8];
            let postgres = tcp
                .peek(&mut request)
                .is_ok_and(|_| request[..4] == [0, 0, 0, 8]);
            if postgres && tcp.read_exact(&mut request).is_ok() {
                let _ = tcp.write_all(b"S");
            }
            open.push(tcp);
        }
    });
    port
}

fn refused(url: &str, options: &ClientOptions) {
    let client = Client::open_with(url, &options.clone().operation_timeout(LIMIT));
    let client = client.expect("a legal URL");
    for _ in 0..3 {
        let begun = Instant::now();
        let key = Key::new("k").expect("a legal key");
        let error = client
            .is_locked_with(&key, &Call::new())
            .expect_err("no roots");
        assert!(begun.elapsed() < FAR_TOO_LONG, "{:?}", begun.elapsed());
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
}

/// A pipe without a writer, a file without an end, and one of a terabyte.
fn odd_files(dir: &Path) -> [PathBuf; 3] {
    let (pipe, long) = (dir.join("pipe.pem"), dir.join("long.pem"));
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let file = std::fs::File::create(&long).expect("a file");
    file.set_len(1 << 40).expect("a sparse file");
    [pipe, "/dev/zero".into(), long]
}

#[test]
fn odd_files_named_by_the_environment_end_no_call_late() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let files = odd_files(dir.path());
    let start = |file: &Path, dirs: &Path| {
        let env = [("SSL_CERT_FILE", file), ("SSL_CERT_DIR", dirs)];
        Stage::start_with("call with roots", dir.path(), &env)
    };
    let nothing = Path::new("/dev/null");
    let mut stages: Vec<_> = files.iter().map(|odd| start(odd, nothing)).collect();
    // A directory with all of them in it.
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("12345678.0")).expect("a link");
    stages.push(start(nothing, dir.path()));
    for mut stage in stages {
        stage.expect("refused");
        stage.finish();
    }
}

#[test]
fn odd_files_named_by_an_option_end_no_call_late() {
    let dir = tempfile::tempdir().expect("a temp dir");
    for odd in odd_files(dir.path()) {
        let url = format!("rediss://127.0.0.1:{}", server());
        refused(&url, &ClientOptions::new().tls_ca_file(&odd));
        let url = format!(
            "postgres://u:p@127.0.0.1:{}/db?sslmode=verify-full&sslrootcert={}",
            server(),
            odd.display()
        );
        refused(&url, &ClientOptions::new());
    }
}
