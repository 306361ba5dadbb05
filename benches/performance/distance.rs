//! How far the server is: a unix socket, TCP on this machine, or a relay that keeps everything for a while.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::servers::postgres_url;

/// A connection with no library.
pub trait Stream: Read + Write + Send {
    fn limit_reads(&self, to: Duration) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn limit_reads(&self, to: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(to))
    }
}

impl Stream for TcpStream {
    fn limit_reads(&self, to: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(to))
    }
}

/// Connects to a socket, or to `127.0.0.1/.s.PGSQL.5432`: Postgres names sockets and ports alike.
pub fn connect(to: &Path) -> std::io::Result<Box<dyn Stream>> {
    if to.is_absolute() {
        return Ok(Box::new(UnixStream::connect(to)?));
    }
    let host = to.parent().and_then(Path::to_str).unwrap_or_default();
    let port = to.extension().and_then(|e| e.to_str()?.parse().ok());
    let stream = TcpStream::connect((host, port.unwrap_or(0)))?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// A socket in front of a Postgres server that passes everything on after `delay`, each way.
pub struct Relay {
    dir: tempfile::TempDir,
    port: u16,
}

impl Relay {
    pub fn start(server: &Path, port: u16, delay: Duration) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let socket = dir.path().join(format!(".s.PGSQL.{port}"));
        let listener = UnixListener::bind(socket).map_err(|e| e.to_string())?;
        let server = server.to_owned();
        // Ends with the program.
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if let Ok(far) = UnixStream::connect(&server)
                    && let (Ok(near2), Ok(far2)) = (near.try_clone(), far.try_clone())
                {
                    pass(near, far, delay);
                    pass(far2, near2, delay);
                }
            }
        });
        Ok(Self { dir, port })
    }

    pub fn url(&self) -> String {
        postgres_url(self.dir.path().display(), self.port)
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, delay: Duration) {
    let (keep, kept) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if keep
                .send((Instant::now() + delay, buffer[..n].to_vec()))
                .is_err()
            {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in kept {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}
