//! Makes calls on connections of the user's own: every call needs a new connection, on the way to which there is a fault, or whose
//! function hangs.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::Measured;
use crate::support::common::stopwatch::Stopwatch;
use crate::support::{scratch, succeed};
use syncguard::{Call, Client, ClientOptions, Key};

/// How many calls of a row there are, all at once.
const CALLERS: usize = 3;
/// The operation timeout of each.
const BOUND_MS: u32 = 300;

/// What the connections of a row are.
#[derive(Clone, Copy)]
pub enum Own {
    Password,
    PasswordThatHangs,
    Connector,
    ConnectorThatHangs,
    Certificate,
    PasswordFile,
    Service,
}

impl Own {
    pub const ALL: [Self; 7] = [
        Self::Password,
        Self::PasswordThatHangs,
        Self::Connector,
        Self::ConnectorThatHangs,
        Self::Certificate,
        Self::PasswordFile,
        Self::Service,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Password => "a password provider",
            Self::PasswordThatHangs => "a password provider that hangs",
            Self::Connector => "a connector",
            Self::ConnectorThatHangs => "a connector that hangs",
            Self::Certificate => "a client certificate",
            Self::PasswordFile => "a password file",
            Self::Service => "a service file",
        }
    }

    /// The habits of libpq are for Postgres.
    pub fn is_for(self, url: &str) -> bool {
        !matches!(self, Self::PasswordFile | Self::Service) || url.starts_with("postgres")
    }

    fn client(self, url: &str, files: &OwnFiles) -> Client {
        let options = ClientOptions::new()
            .operation_timeout(Duration::from_millis(BOUND_MS.into()))
            .on_warning(|_| {});
        let options = match self {
            Self::Password => options.password(|| Ok("a password".to_owned())),
            Self::PasswordThatHangs => options.password(|| {
                std::thread::sleep(Duration::from_secs(5));
                Ok(String::new())
            }),
            Self::Connector => {
                options.connector(|to| Ok(TcpStream::connect((to.host(), to.port()))?.into()))
            }
            Self::ConnectorThatHangs => options.connector(|_| {
                std::thread::sleep(Duration::from_secs(5));
                Err(std::io::Error::other("never"))
            }),
            Self::Certificate => {
                options.tls_client_cert(files.file("cert.pem"), files.file("key.pem"))
            }
            Self::PasswordFile | Self::Service => options,
        };
        Client::open_with(&self.url(url, files), &options).expect("a legal URL")
    }

    fn url(self, url: &str, files: &OwnFiles) -> String {
        match self {
            Self::Certificate => url
                .replace("redis://", "rediss://")
                .replace("sslmode=disable", "sslmode=require"),
            Self::PasswordFile => format!("{url}&passfile={}", files.file("passwords").display()),
            Self::Service => {
                let port = url
                    .rsplit(':')
                    .next()
                    .and_then(|rest| rest.split('/').next());
                let text = format!(
                    "[s]\nhost=127.0.0.1\nport={}\nuser=postgres\nsslmode=disable\n",
                    port.expect("a port")
                );
                let file = files.file("services");
                std::fs::write(&file, text).expect("written");
                format!("service=s servicefile={}", file.display())
            }
            _ => url.to_owned(),
        }
    }

    /// Makes the calls, and says how late they came.
    pub fn measure(self, url: &str, files: &OwnFiles) -> Measured {
        let client = self.client(url, files);
        let start = Arc::new(Barrier::new(CALLERS));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (client, start) = (client.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    let watch = Stopwatch::start();
                    let _ = client.is_locked_with(Key::new("k").expect("a key"), &Call::new());
                    watch.stop_after(Duration::from_millis(BOUND_MS.into()))
                })
            })
            .collect();
        let mut measured = Measured::default();
        for caller in callers {
            let (took, lost) = caller.join().expect("no panic");
            measured.add(took, lost, BOUND_MS);
        }
        // The last free waits a second for a function that hangs; it is no part of the call.
        std::mem::forget(client);
        measured
    }
}

/// The files of the rows.
pub struct OwnFiles(tempfile::TempDir);

impl OwnFiles {
    pub fn make() -> Self {
        let files = Self(scratch());
        let mut openssl = Command::new("openssl");
        openssl.current_dir(files.0.path()).args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
            "-days",
            "30",
            "-subj",
            "/CN=client",
        ]);
        succeed(&mut openssl, "openssl");
        std::fs::write(files.file("passwords"), "*:*:*:*:a password\n").expect("written");
        for name in ["key.pem", "passwords"] {
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(files.file(name), mode).expect("a mode");
        }
        files
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::join(self.0.path(), name)
    }
}
