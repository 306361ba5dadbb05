//! Starts a private redis-server: in its own directory, on its own unix socket, ended with the test.

pub use super::ports::free_port;

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long a server may take for anything before a test gives up on it. Far more than it ever takes.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listen {
    Unix,
    Tcp,
    Tls,
}

/// A running server. Start it on the thread of the test: the kernel kills it when that thread ends.
pub struct RedisServer {
    dir: TempDir,
    args: Vec<String>,
    env: Vec<(String, String)>,
    listen: Listen,
    port: Option<u16>,
    process: Option<Child>,
}

impl RedisServer {
    /// A server on a unix socket only, with more arguments for its command line. Nothing is saved unless they say so.
    pub fn start(args: &[&str]) -> Self {
        Self::launch(args, &[], Listen::Unix, &[])
    }

    /// The same, also on a free TCP port.
    pub fn start_tcp(args: &[&str]) -> Self {
        Self::launch(args, &[], Listen::Tcp, &[])
    }

    /// The same, also on a free TCP port under TLS, with this certificate and key in PEM.
    pub fn start_tls(certificate: &str, key: &str, args: &[&str]) -> Self {
        let files = [("cert.pem", certificate), ("key.pem", key)];
        let more = [
            "--tls-cert-file",
            "cert.pem",
            "--tls-key-file",
            "key.pem",
            "--tls-ca-cert-file",
            "cert.pem",
            "--tls-auth-clients",
            "no",
        ];
        Self::launch(&[&more, args].concat(), &[], Listen::Tls, &files)
    }

    /// A server on a unix socket, with more in its environment.
    pub fn start_env(env: &[(&str, &str)]) -> Self {
        Self::launch(&[], env, Listen::Unix, &[])
    }

    fn launch(args: &[&str], env: &[(&str, &str)], listen: Listen, files: &[(&str, &str)]) -> Self {
        let dir = directory("sg-redis-");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("a file for the server");
        }
        let tcp = listen != Listen::Unix;
        let owned = |s: &str| s.to_owned();
        let mut server = Self {
            dir,
            args: args.iter().copied().map(owned).collect(),
            env: env.iter().map(|(k, v)| (owned(k), owned(v))).collect(),
            listen,
            port: None,
            process: None,
        };
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            // Between the look and the server's bind another program may take the port: then the server gets another one.
            server.port = tcp.then(free_port);
            match server.spawn(false) {
                Ok(()) => return server,
                Err(why) => assert!(
                    tcp && Instant::now() < deadline,
                    "redis-server did not start: {why}"
                ),
            }
        }
    }

    fn spawn(&mut self, loading: bool) -> Result<(), String> {
        let dir = self.dir.path();
        let port = self.port.unwrap_or(0).to_string();
        let ports: &[&str] = match self.listen {
            Listen::Tls => &["--port", "0", "--tls-port", &port],
            _ => &["--port", &port],
        };
        // Another version, or a relative of Redis.
        let program = std::env::var_os("SYNCGUARD_REDIS_SERVER").unwrap_or("redis-server".into());
        let log = std::fs::File::create(dir.join("log")).expect("a log file");
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .current_dir(dir)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .args(ports)
            .args(["--bind", "127.0.0.1"])
            .arg("--unixsocket")
            .arg(self.socket())
            .args(["--save", "", "--dir"])
            .arg(dir)
            .args(["--user", "admin", "on", "nopass", "~*", "&*", "+@all"])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv and redis-server are installed");
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(status) = process.try_wait().expect("our own child") {
                let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
                return Err(format!("{status}\n{log}"));
            }
            let ready = match self.try_cli(&["PING"]) {
                Ok(Value::Text(answer)) => !loading && answer == b"PONG",
                Ok(Value::Error(line)) => loading && line.starts_with("LOADING"),
                _ => false,
            };
            if ready {
                self.process = Some(process);
                return Ok(());
            }
            if Instant::now() > deadline {
                let _ = process.kill();
                let _ = process.wait();
                return Err("it never answered".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn port(&self) -> u16 {
        self.port.expect("started with start_tcp")
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub fn pid(&self) -> Pid {
        let process = self.process.as_ref().expect("running");
        Pid::from_raw(i32::try_from(process.id()).expect("a pid"))
    }

    /// Its URL on the unix socket.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Its URL on the TCP port.
    pub fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Runs one command as the administrator.
    pub fn cli(&self, command: &[&str]) -> Value {
        match self.try_cli(command) {
            Ok(Value::Error(line)) => panic!("{command:?}: {line}"),
            Ok(value) => value,
            Err(e) => panic!("{command:?}: {e}"),
        }
    }

    /// The same; an error reply is a value, and trouble with the connection an error.
    pub fn try_cli(&self, command: &[&str]) -> std::io::Result<Value> {
        let mut link = Link::open(&self.socket())?;
        link.call(&["AUTH", "admin", "x"])?;
        link.call(command)
    }

    /// Stops the process until the guard is dropped.
    pub fn pause(&self) -> Paused {
        let pid = self.pid();
        kill(pid, Signal::SIGSTOP).expect("our own child");
        Paused(pid)
    }

    /// SIGKILL: nothing is saved, nothing is said.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("our own child");
            process.wait().expect("our own child");
        }
    }

    /// Starts it again after [`kill`](Self::kill), on the same socket, port and data.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it still runs");
        let _ = std::fs::remove_file(self.socket());
        let deadline = Instant::now() + WAIT_LIMIT;
        while let Err(why) = self.spawn(false) {
            assert!(
                Instant::now() < deadline,
                "redis-server did not restart: {why}"
            );
        }
    }

    /// The same with more arguments, and returns while it is still loading its data.
    pub fn start_loading(&mut self, args: &[&str]) {
        let _ = std::fs::remove_file(self.socket());
        self.args.extend(args.iter().map(|s| (*s).to_owned()));
        if let Err(why) = self.spawn(true) {
            panic!("redis-server did not start: {why}");
        }
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Continues a stopped process when dropped.
pub struct Paused(Pid);

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// A directory whose path is short enough for a socket's name and needs no escapes in a URL, wherever `TMPDIR` points.
pub fn directory(prefix: &str) -> TempDir {
    use std::os::unix::ffi::OsStrExt;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-".contains(b);
    let fits = |path: &PathBuf| {
        let text = path.as_os_str().as_bytes();
        text.len() <= 60 && text.iter().all(plain)
    };
    let given = std::path::absolute(std::env::temp_dir()).ok().filter(fits);
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(given.unwrap_or_else(|| "/tmp".into()))
        .expect("a directory for the server")
}

/// A reply, as the tests see it.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Value>),
    Error(String),
}

impl Value {
    pub fn text(&self) -> String {
        match self {
            Self::Text(bytes) => String::from_utf8(bytes.clone()).expect("UTF-8"),
            other => panic!("not a text: {other:?}"),
        }
    }

    pub fn int(&self) -> i64 {
        match self {
            Self::Int(n) => *n,
            other => panic!("not a number: {other:?}"),
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Self::List(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Text(b) => write!(f, "{:?}", String::from_utf8_lossy(b)),
            Self::List(items) => f.debug_list().entries(items).finish(),
            Self::Error(line) => write!(f, "error {line}"),
        }
    }
}

/// A connection of the test's own, with no library in between.
pub struct Link {
    reader: BufReader<UnixStream>,
}

impl Link {
    pub fn open(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(WAIT_LIMIT))?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    pub fn call(&mut self, command: &[&str]) -> std::io::Result<Value> {
        let mut out = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            out.extend(format!("${}\r\n{part}\r\n", part.len()).bytes());
        }
        self.reader.get_mut().write_all(&out)?;
        self.read()
    }

    /// What the server says next, such as a line of `MONITOR`.
    pub fn read(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let number = || line[1..].parse::<i64>().expect("a number");
        Ok(match &line[..1] {
            "+" => Value::Text(line[1..].into()),
            "-" => Value::Error(line[1..].to_owned()),
            ":" => Value::Int(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => Value::Nil,
                Ok(n) => {
                    let mut bytes = vec![0; n + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(n);
                    Value::Text(bytes)
                }
            },
            "*" => match usize::try_from(number()) {
                Err(_) => Value::Nil,
                Ok(n) => Value::List((0..n).map(|_| self.read()).collect::<Result<_, _>>()?),
            },
            other => panic!("not a reply: {other}"),
        })
    }
}
