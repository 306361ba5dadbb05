//! Starts a private Postgres server, psql sessions that can be left waiting, and what can stand in front of a server: PgBouncer, or
//! a relay that looks like a pooler.

pub use super::ports::free_port;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use syncguard::{
    AcquireOutcome, Acquired, Backend, Call, ClientOptions, Key, LockId, PostgresBackend, Ttl,
};

/// Where the server's programs are: `PG_BIN`, or the distribution's.
fn bin(program: &str) -> PathBuf {
    let dir = std::env::var_os("PG_BIN")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            (13..=18)
                .rev()
                .map(|v| PathBuf::from(format!("/usr/lib/postgresql/{v}/bin")))
                .find(|dir| dir.join("postgres").exists())
                .expect("no Postgres server; set PG_BIN")
        });
    dir.join(program)
}

fn is_root() -> bool {
    let out = Command::new("id").arg("-u").output().expect("id");
    out.stdout.trim_ascii() == b"0"
}

/// Runs as the user `postgres` when the test is root, because the server refuses root.
fn as_server_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.args(["--pdeathsig", "QUIT"]).arg(program);
    without_settings(&mut command);
    command
}

/// Whatever the tester's own Postgres is reached by, and however it speaks, is not for the one of the test.
fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C").env("TZ", "UTC");
}

/// Starts a child from a thread that outlives the test's: its death signal comes when that thread ends.
pub fn spawn(mut command: Command) -> Child {
    type Job = (Command, mpsc::Sender<Child>);
    static STARTER: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);
    let (reply, child) = mpsc::channel();
    command.stdin(Stdio::null());
    let mut starter = STARTER.lock().expect("the starter");
    let jobs = starter.get_or_insert_with(|| {
        let (jobs, todo) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, reply) in todo {
                let _ = reply.send(command.spawn().expect("a program to start"));
            }
        });
        jobs
    });
    jobs.send((command, reply)).expect("the starter lives");
    drop(starter);
    child.recv().expect("a child")
}

pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub struct Server {
    dir: tempfile::TempDir,
    pub port: u16,
    child: Mutex<Option<Child>>,
    settings: Vec<String>,
    clock: Option<std::fs::File>,
}

impl Server {
    /// A server that other tests of this process may use too; use a schema of your own.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start(&[]));
        *shared = Arc::downgrade(&server);
        server
    }

    /// A server of its own with these settings (`name=value`). `fsync` is off unless they say otherwise.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_encoded("UTF8", settings)
    }

    pub fn start_encoded(encoding: &str, settings: &[&str]) -> Self {
        let dir = Self::directory();
        let made = as_server_user(&bin("initdb"))
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "--no-sync",
                "--locale=C",
                "-E",
                encoding,
                "-D",
            ])
            .arg(dir.path().join("data"))
            .stdin(Stdio::null())
            .output()
            .expect("initdb");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        Self::adopt(dir, settings)
    }

    /// A directory that the server may enter, whose path is short enough for a socket's name and needs no escapes in a URL,
    /// wherever `TMPDIR` points.
    pub fn directory() -> tempfile::TempDir {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::PermissionsExt;
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-".contains(b);
        let open_to_all = |path: &Path| {
            let mode = |dir: &Path| std::fs::metadata(dir).map(|m| m.permissions().mode());
            path.ancestors()
                .all(|dir| mode(dir).is_ok_and(|mode| mode & 1 == 1))
        };
        let fits = |path: &PathBuf| {
            let text = path.as_os_str().as_bytes();
            text.len() <= 60 && text.iter().all(plain) && (!is_root() || open_to_all(path))
        };
        let given = std::path::absolute(std::env::temp_dir()).ok().filter(fits);
        let dir = tempfile::Builder::new()
            .prefix("sg-pg-")
            .tempdir_in(given.unwrap_or_else(|| "/tmp".into()))
            .expect("a directory");
        if is_root() {
            let done = Command::new("chown")
                .arg("postgres")
                .arg(dir.path())
                .status();
            assert!(done.expect("chown").success());
        }
        dir
    }

    /// Starts a server on the data in `dir/data`.
    pub fn adopt(dir: tempfile::TempDir, settings: &[&str]) -> Self {
        let mut server = Self {
            dir,
            port: 0,
            child: Mutex::new(None),
            settings: settings.iter().map(|s| (*s).to_owned()).collect(),
            clock: None,
        };
        for _ in 0..5 {
            server.port = free_port();
            if server.try_start() {
                return server;
            }
        }
        panic!("the server does not start: {}", server.log());
    }

    /// Restarts it with a wall clock that [`set_clock`](Self::set_clock) moves.
    pub fn take_clock(&mut self) {
        let shim = self.dir.path().join("clock.so");
        let source = self.dir.path().join("clock.c");
        std::fs::write(&source, include_str!("clock_shim.c")).expect("the source");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&shim)
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(built.expect("cc").success());
        let file = std::fs::File::create(self.dir.path().join("clock")).expect("a file");
        self.clock = Some(file);
        // The server may be another user, whatever the umask says.
        let done = Command::new("chmod")
            .arg("a+rx")
            .args([shim, self.dir.path().join("clock")])
            .status();
        assert!(done.expect("chmod").success());
        self.set_clock(0);
        self.stop();
        self.restart();
    }

    /// Moves the server's clock to this many seconds from the real one.
    pub fn set_clock(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        let clock = self.clock.as_ref().expect("a clock");
        clock
            .write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("the clock is set");
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn try_start(&self) -> bool {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("a log");
        let mut command = as_server_user(&bin("postgres"));
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.dir.path());
        command.args(["-p", &self.port.to_string()]);
        let defaults = [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "max_connections=100",
            "shared_buffers=32MB",
        ];
        for setting in defaults
            .iter()
            .copied()
            .chain(self.settings.iter().map(String::as_str))
        {
            command.args(["-c", setting]);
        }
        command
            .stdout(log.try_clone().expect("the log"))
            .stderr(log);
        if self.clock.is_some() {
            command
                .env("LD_PRELOAD", self.dir.path().join("clock.so"))
                .env("SG_CLOCK", self.dir.path().join("clock"));
        }
        let mut child = spawn(command);
        let answered = wait_for("the server answers or ends", || {
            if child.try_wait().expect("its state").is_some() {
                return Some(false);
            }
            self.psql()
                .args(["-c", "SELECT 1"])
                .output()
                .expect("psql")
                .status
                .success()
                .then_some(true)
        });
        *self.child.lock().expect("the child") = answered.then_some(child);
        answered
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop).
    pub fn restart(&self) {
        wait_for("the server starts again", || self.try_start().then_some(()));
    }

    pub fn pid(&self) -> i32 {
        self.child
            .lock()
            .expect("the child")
            .as_ref()
            .expect("it runs")
            .id() as i32
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .expect("kill")
                .success()
        );
    }

    /// SIGKILL to the postmaster and every child: the server's crash.
    pub fn kill(&self) {
        // Stopped first: a child that it starts after the list is made would survive, and keep the next server from its memory.
        freeze(self.pid());
        let mut all = self.backends();
        all.insert(0, self.pid());
        for pid in all {
            let _ = Command::new("kill")
                .args(["-9", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
        self.reap();
    }

    /// An orderly stop that ends sessions.
    pub fn stop(&self) {
        self.signal("-INT");
        self.reap();
    }

    fn reap(&self) {
        if let Some(mut child) = self.child.lock().expect("the child").take() {
            child.wait().expect("its end");
        }
    }

    /// The server's processes but the postmaster.
    pub fn backends(&self) -> Vec<i32> {
        let out = Command::new("pgrep")
            .args(["-P", &self.pid().to_string()])
            .output()
            .expect("pgrep");
        String::from_utf8_lossy(&out.stdout)
            .lines()
            .filter_map(|l| l.parse().ok())
            .collect()
    }

    /// SIGSTOP for all of it, until the answer is dropped.
    pub fn freeze(&self) -> Frozen {
        let mut pids = vec![self.pid()];
        freeze(pids[0]);
        pids.extend(self.backends());
        pids[1..].iter().copied().for_each(freeze);
        Frozen(pids)
    }

    pub fn url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    pub fn url_of(&self, role: &str) -> String {
        format!(
            "postgres://{role}@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    pub fn unix_url(&self) -> String {
        format!(
            "postgres://postgres@/postgres?host={}&port={}",
            self.dir.path().display(),
            self.port
        )
    }

    pub fn open(&self, options: &ClientOptions) -> PostgresBackend {
        PostgresBackend::open(&self.url(), options).expect("a store")
    }

    fn psql(&self) -> Command {
        // Servers that are shipped for embedding come without it; any release's talks to any server.
        let own = bin("psql");
        let program = if own.exists() { own } else { "psql".into() };
        let mut command = Command::new(program);
        command
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-d",
                "postgres",
            ])
            .arg("-h")
            .arg(self.dir.path())
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::null());
        without_settings(&mut command);
        command.env("PGCONNECT_TIMEOUT", "30");
        command
    }

    /// Runs SQL and answers its rows.
    pub fn sql(&self, sql: &str) -> String {
        let out = self.psql().args(["-c", sql]).output().expect("psql");
        assert!(
            out.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    /// A standby that follows this server. It is copied while this one is stopped for a moment: `pg_basebackup` is not always there.
    pub fn standby(&self) -> Self {
        let dir = Self::directory();
        let copy = dir.path().join("data");
        let script = "cp -a \"$1\" \"$2\" && : > \"$2/standby.signal\" && echo \"$3\" >> \"$2/postgresql.auto.conf\"";
        let source = format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres'",
            self.port
        );
        self.stop();
        let copied = as_server_user(Path::new("sh"))
            .args(["-c", script, "sh"])
            .args([self.data().as_os_str(), copy.as_os_str()])
            .arg(source)
            .stdin(Stdio::null())
            .output()
            .expect("sh");
        self.restart();
        assert!(
            copied.status.success(),
            "{}",
            String::from_utf8_lossy(&copied.stderr)
        );
        Self::adopt(dir, &["hot_standby=on"])
    }

    /// A session that stays open.
    pub fn session(&self) -> Session {
        let mut child = self
            .psql()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("psql");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (lines, received) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        Session {
            child,
            input,
            lines: received,
        }
    }

    /// How many calls on tables of `schema` wait for a lock.
    pub fn waiting(&self, schema: &str) -> usize {
        self.sql(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"{schema}\".%'"
        ))
        .parse()
        .expect("a number")
    }

    pub fn wait_until_waiting(&self, schema: &str, calls: usize) {
        wait_for("calls wait for a lock", || {
            (self.waiting(schema) >= calls).then_some(())
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.lock().is_ok_and(|c| c.is_some()) {
            self.signal("-QUIT");
            self.reap();
        }
    }
}

fn freeze(pid: i32) {
    let _ = Command::new("kill")
        .args(["-STOP", &pid.to_string()])
        .status();
}

pub struct Frozen(Vec<i32>);

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = Command::new("kill")
                .args(["-CONT", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// An open psql.
pub struct Session {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Session {
    /// Stops the process of the client, as a frozen machine would, until the answer is dropped.
    pub fn freeze(&self) -> Frozen {
        let pid = self.child.id() as i32;
        freeze(pid);
        Frozen(vec![pid])
    }

    /// Runs SQL and waits for its end.
    pub fn run(&mut self, sql: &str) -> Vec<String> {
        self.send(sql);
        self.finish()
    }

    /// Runs SQL and does not wait.
    pub fn send(&mut self, sql: &str) {
        writeln!(self.input, "{sql};\n\\echo --done--").expect("psql listens");
        self.input.flush().expect("psql listens");
    }

    /// Waits for what was sent.
    pub fn finish(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        loop {
            let line = self
                .lines
                .recv_timeout(Duration::from_secs(60))
                .expect("psql answers");
            if line == "--done--" {
                return rows;
            }
            rows.push(line);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// PgBouncer in transaction mode.
pub struct Bouncer {
    pub port: u16,
    child: Child,
    dir: tempfile::TempDir,
}

impl Bouncer {
    pub fn start(server: &Server, pool: usize) -> Self {
        for _ in 0..5 {
            let dir = Server::directory();
            let port = free_port();
            let config = dir.path().join("pgbouncer.ini");
            std::fs::write(
                &config,
                format!(
                    "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                     listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {pool}\n\
                     max_client_conn = 500\nlogfile = {}\n",
                    server.port,
                    dir.path().join("log").display()
                )
                .replace("[databases]\npostgres =", "[databases]\npostgres = user=postgres"),
            )
            .expect("a config");
            let _ = Command::new("chmod").args(["a+r"]).arg(&config).status();
            if let Some(child) = Self::listening(dir.path(), port) {
                return Self { port, child, dir };
            }
        }
        panic!("PgBouncer does not start");
    }

    /// Starts it with the configuration in `dir`; `None` if it ends at once.
    fn listening(dir: &Path, port: u16) -> Option<Child> {
        let mut command = as_server_user(Path::new("/usr/sbin/pgbouncer"));
        command
            .arg(dir.join("pgbouncer.ini"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = spawn(command);
        let up = wait_for("PgBouncer listens or ends", || {
            if child.try_wait().expect("its state").is_some() {
                return Some(false);
            }
            TcpStream::connect(("127.0.0.1", port)).ok().map(|_| true)
        });
        up.then_some(child)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after [`kill`](Self::kill), on the same port.
    pub fn start_again(&mut self) {
        self.child = wait_for("PgBouncer starts again", || {
            Self::listening(self.dir.path(), self.port)
        });
    }

    pub fn url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A relay that names another process than the server's own, as a pooler does: no client owns a session behind it. Requests to
/// cancel are passed on with the right name. It ends with the test's process.
pub struct Disguise {
    pub port: u16,
}

impl Disguise {
    pub fn start(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let upstream = server.port;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let _ = Self::relay(&client, upstream);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port }
    }

    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    pub fn url_of(&self, role: &str) -> String {
        format!(
            "postgres://{role}@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    fn relay(mut client: &TcpStream, port: u16) -> io::Result<()> {
        const CANCEL: u32 = 80_877_102;
        // The first message has no kind: its length, and a code.
        let mut hello = vec![0; 8];
        client.read_exact(&mut hello)?;
        let word =
            |b: &[u8], at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        hello.resize(word(&hello, 0) as usize, 0);
        client.read_exact(&mut hello[8..])?;
        let cancels = word(&hello, 4) == CANCEL;
        if cancels {
            hello[8] ^= 0x40;
        }
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        for stream in [client, &server] {
            stream.set_nodelay(true)?;
        }
        server.write_all(&hello)?;
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let mut kind = 0;
        while kind != b'Z' && !cancels {
            let mut message = vec![0; 5];
            server.read_exact(&mut message)?;
            kind = message[0];
            message.resize(word(&message, 1) as usize + 1, 0);
            server.read_exact(&mut message[5..])?;
            if kind == b'K' {
                message[5] ^= 0x40;
            }
            client.write_all(&message)?;
        }
        io::copy(&mut server, &mut client).map(drop)
    }
}

pub fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

pub fn id() -> LockId {
    LockId::random().expect("an id")
}

pub fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a ttl")
}

/// A store with its tables, patient enough for a busy machine.
pub fn set_up(server: &Server, schema: &str) -> PostgresBackend {
    let options = ClientOptions::new()
        .schema(schema)
        .operation_timeout(Duration::from_secs(60));
    let store = server.open(&options);
    store.setup_schema(&Call::new()).expect("set-up");
    store
}

/// Takes a lock that is free.
pub fn take(store: &PostgresBackend, name: &str) -> Acquired {
    match store
        .acquire(&key(name), &id(), ttl(60_000), &Call::new())
        .expect("an answer")
    {
        AcquireOutcome::Acquired(grant) => grant,
        AcquireOutcome::Locked(holder) => panic!("locked by {holder:?}"),
    }
}
