//! What the command line looks like. The help, the man pages and the completions are made of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use syncguard::FenceSource;

const EXIT_CODES: &str = "Exit codes:
  0    done; of `run`: the command ended with 0
  1    `show`, `fence`, `release`: there is no such lock; `check --strict`: there are warnings
  64   bad arguments
  69   the store cannot be reached or does not answer
  70   the store answered something that it should not
  74   the output cannot be written
  75   the lock is held by another holder (`run -E` chooses another code)
  77   the store refuses the user or a right
  78   `check`: what locks need is not set up
  79   of `run`: the lock was lost, not renewed, or held for --max-hold, and the command was ended
  126  of `run`: the command cannot be executed
  127  of `run`: there is no such command
  128+n  ended by the signal n, as the command or while waiting
  otherwise the exit code of the command";

/// Runs commands under a distributed lock, shows which locks are held, and mends what is stuck.
#[derive(Parser)]
#[command(name = "syncguard", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Which store.
#[derive(Args)]
pub struct StoreArgs {
    /// The store: redis://…, postgres://…, sqlite:PATH. Other users of the machine can see it: put a password into --url-file or
    /// SYNCGUARD_URL instead.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub url: Option<String>,
    /// A file whose first line is the URL of the store. Without it and --url, the variable SYNCGUARD_URL names the store.
    #[arg(long, global = true, value_name = "FILE")]
    pub url_file: Option<PathBuf>,
    /// The prefix of all names in Redis [default: syncguard].
    #[arg(long, global = true, value_name = "PREFIX")]
    pub key_prefix: Option<String>,
    /// The schema of the tables in Postgres [default: the connection's own].
    #[arg(long, global = true, value_name = "SCHEMA")]
    pub schema: Option<String>,
    /// The table of locks in Postgres [default: syncguard_locks].
    #[arg(long, global = true, value_name = "NAME")]
    pub table: Option<String>,
    /// The table of fence counters in Postgres [default: syncguard_fence_counters].
    #[arg(long, global = true, value_name = "NAME")]
    pub fence_table: Option<String>,
    /// Where fences come from: `counter` or `clock`. All clients of a store must agree [default: counter].
    #[arg(long, global = true, value_name = "SOURCE", value_parser = parse_fences)]
    pub fences: Option<FenceSource>,
    /// A file of certificates to trust beside those of the system.
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_ca_file: Option<PathBuf>,
    /// Answers in JSON, a value per line.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Runs a command under a lock, and ends it before the lock can have another holder.
    Run(RunArgs),
    /// Lists the locks that are held.
    Ls(ListArgs),
    /// Shows one lock.
    Show(KeyArgs),
    /// Shows the locks that are held, and every change.
    Watch(WatchArgs),
    /// Takes a lock away from its holder.
    Release(ReleaseArgs),
    /// Prints the fence of the holder of a lock. Changes nothing.
    Fence(KeyArgs),
    /// Says whether the store can be used and how safe it is.
    Check(CheckArgs),
    /// Creates what the store needs: tables and functions in Postgres, the file of SQLite.
    Setup(SetupArgs),
    /// Prints the completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the man pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        directory: PathBuf,
    },
    /// What `run` starts: ties the command to its parent, and becomes it.
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
    /// What `run` starts beside it: kills the command when `run` cannot.
    #[command(name = "__supervise", hide = true)]
    Supervise,
}

#[derive(Args)]
pub struct RunArgs {
    /// Does not wait for the lock.
    #[arg(short = 'n', long = "try", conflicts_with_all = ["wait", "forever"])]
    pub try_once: bool,
    /// How long to wait for the lock: 500ms, 30s, 5m, 2h, 1d, or `forever`.
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = parse_wait, conflicts_with = "forever")]
    pub wait: Wait,
    /// How long the lock outlives this program: it is renewed until the command ends.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub ttl: Duration,
    /// Ends the command after this time under the lock: SIGTERM then, SIGKILL after the grace.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub max_hold: Option<Duration>,
    /// How long before the end of the lease the command gets SIGTERM if the lock cannot be renewed; SIGKILL follows before the end.
    /// At most half of the ttl [default: the smaller of 10s and a third of the ttl].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// The exit code if the lock is held by another holder.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 75)]
    pub conflict_exit_code: u8,
    /// Says nothing if the lock is held by another holder: the exit code tells it.
    #[arg(short, long)]
    pub quiet: bool,
    /// Waits for the lock again whenever the command has ended or the lock was lost: a leader election. A signal or Ctrl-C ends it.
    #[arg(long)]
    pub forever: bool,
    /// What to store beside the lock for people that look at it [default: host/pid/command].
    #[arg(long, value_name = "TEXT")]
    pub holder: Option<String>,
    /// The name of the lock.
    pub key: String,
    /// The command and its arguments, behind `--`. It gets SYNCGUARD_KEY and SYNCGUARD_FENCE in its environment.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct ListArgs {
    /// Only locks whose name begins so.
    #[arg(default_value = "")]
    pub prefix: String,
}

#[derive(Args)]
pub struct KeyArgs {
    /// The name of the lock.
    pub key: String,
}

#[derive(Args)]
pub struct WatchArgs {
    /// Only locks whose name begins so.
    #[arg(default_value = "")]
    pub prefix: String,
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub every: Duration,
}

#[derive(Args)]
pub struct ReleaseArgs {
    /// The name of the lock.
    pub key: String,
    /// Takes the lock away from its holder, which may still work.
    #[arg(long, required = true)]
    pub force: bool,
    /// Only if the holder has this fence.
    #[arg(long, value_name = "N")]
    pub fence: Option<u64>,
}

#[derive(Args)]
pub struct CheckArgs {
    /// Ends with 1 if there are warnings.
    #[arg(long)]
    pub strict: bool,
}

#[derive(Args)]
pub struct SetupArgs {
    /// Prints the SQL for an empty Postgres database, and does nothing.
    #[arg(long)]
    pub print_sql: bool,
}

#[derive(Args)]
pub struct ExecArgs {
    /// The process that must be the parent.
    pub parent: i32,
    /// Whether to take the terminal.
    pub foreground: String,
    /// The descriptor to tell on that there is no such command.
    pub report: i32,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// How long to wait for a lock.
#[derive(Clone, Copy)]
pub enum Wait {
    AtMost(Duration),
    Forever,
}

fn parse_fences(text: &str) -> Result<FenceSource, String> {
    match text {
        "counter" => Ok(FenceSource::Counter),
        "clock" => Ok(FenceSource::Clock),
        _ => Err("fences come from the counter or the clock".to_owned()),
    }
}

fn parse_wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        text => parse_duration(text).map(Wait::AtMost),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err("a time is a number with ms, s, m, h or d behind it".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "a time is a number with ms, s, m, h or d behind it".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "the time is too long".to_owned())
}
