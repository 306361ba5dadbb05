//! One round: workers, faults, and then the evidence for the judge.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use syncguard::{Client, ClientOptions};

use crate::clock::{self, MS, sleep_ms};
use crate::gate::{Arrived, Gate};
use crate::languages::Programs;
use crate::outputs;
use crate::plan::{Fault, Language, Plan, SLOTS, Step};
use crate::record::{self, Record, kind};
use crate::store::{Kind, Store, Way, step_clock};
use crate::worker::broken::Break;
use crate::worker::{Orders, key_name};

/// How long after the end of its work a worker may still need to clean up.
const WORKER_ENDS_MS: i64 = 60_000;
/// How often a dead holder's key is looked at.
const PROBE_MS: u64 = 10;

/// A fault that happened. Faults of one worker name its incarnation.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    pub fault: Fault,
    pub incarnation: Option<i64>,
    /// It was in full effect from then to then.
    pub from: i64,
    pub to: i64,
    /// When all was well again.
    pub over: i64,
}

/// What became of a key whose holder was killed.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    pub key: i64,
    pub killed: i64,
    pub ttl: i64,
    /// When the key was seen free, and how long the look itself took.
    pub free: i64,
    pub look: i64,
}

/// A worker process and what it wrote.
pub struct Life {
    pub incarnation: i64,
    pub slot: usize,
    pub language: Language,
    pub way: Way,
    pub records: Vec<Record>,
    /// Why it ended in another way than by our SIGKILL or by itself.
    pub trouble: Option<String>,
}

pub struct Evidence {
    pub kind: Kind,
    pub lives: Vec<Life>,
    pub faults: Vec<Happened>,
    pub writes: Vec<Arrived>,
    pub takeovers: Vec<Takeover>,
    /// Keys that are still held after everything should be over.
    pub held: Vec<i64>,
    /// Lines of outputs that have a secret.
    pub secrets: Vec<String>,
    /// How many lock ids the outputs were searched for.
    pub lock_ids: u64,
    /// When the coordinator did not run.
    pub stalls: Vec<(i64, i64)>,
}

/// What all rounds of a run use.
pub struct Arena {
    pub store: Store,
    pub gate: Gate,
    pub programs: Programs,
    pub dir: PathBuf,
    pub broken: Option<Break>,
    pub rust_only: bool,
    pub calm: bool,
    incarnations: AtomicI64,
    stalls: &'static Mutex<Vec<(i64, i64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    pub fn new(kind: Kind, dir: &Path, broken: Option<Break>, rust_only: bool, calm: bool) -> Self {
        static STALLS: Mutex<Vec<(i64, i64)>> = Mutex::new(Vec::new());
        std::thread::spawn(|| {
            clock::watch_for_stalls(|from, to| lock(&STALLS).push((from, to)), |_| ());
        });
        step_clock(dir, 0);
        let store = Store::start(kind, dir, broken != Some(Break::NoDurability));
        let client = Client::open(&store.direct_url()).expect("a client");
        client.setup_schema().expect("the tables");
        Self {
            store,
            gate: Gate::serve(&dir.join("gate"), broken == Some(Break::OpenGate)),
            programs: Programs::build(dir, !rust_only),
            dir: dir.to_owned(),
            broken,
            rust_only,
            calm,
            incarnations: AtomicI64::new(0),
            stalls: &STALLS,
        }
    }

    pub fn round(&self, seed: u64, round_ms: u64) -> Evidence {
        let plan = match self.calm {
            true => Plan::new(self.store.kind, seed, 0),
            false => Plan::new(self.store.kind, seed, round_ms),
        };
        let begun = clock::now();
        let round = Round {
            arena: self,
            seed,
            begun,
            end: begun + round_ms as i64 * MS,
            faults: Mutex::default(),
            takeovers: Mutex::default(),
            lives: Mutex::default(),
        };
        lock(self.stalls).clear();
        std::thread::scope(|scope| {
            for (slot, steps) in plan.workers.iter().enumerate() {
                let round = &round;
                scope.spawn(move || round.tend(scope, slot, steps));
            }
            scope.spawn(|| round.lane(&plan.network));
            scope.spawn(|| round.lane(&plan.store));
            // On this thread: a server ends with the thread that starts it.
            round.lane(&plan.server);
        });
        round.evidence()
    }
}

struct Round<'a> {
    arena: &'a Arena,
    seed: u64,
    begun: i64,
    end: i64,
    faults: Mutex<Vec<Happened>>,
    takeovers: Mutex<Vec<Takeover>>,
    lives: Mutex<Vec<Life>>,
}

/// A worker that runs.
struct Running {
    child: Child,
    life: Life,
    log: PathBuf,
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    /// Waits for its end.
    fn reap(mut self, killed: bool) -> Life {
        let until = clock::now() + WORKER_ENDS_MS * MS;
        let status = loop {
            match self.child.try_wait().expect("our own child") {
                Some(status) => break Some(status),
                None if clock::now() > until => break None,
                None => sleep_ms(5),
            }
        };
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.life.records = record::read(&self.log);
        self.life.trouble = match status {
            None => Some("it did not end".to_owned()),
            Some(status) if !killed && !status.success() => Some(status.to_string()),
            Some(_) => None,
        };
        self.life
    }
}

impl Round<'_> {
    fn wait_until(&self, at_ms: u64) {
        let left = self.begun + at_ms as i64 * MS - clock::now();
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
    }

    fn happened(&self, fault: Fault, incarnation: Option<i64>, (from, to): (i64, i64)) {
        lock(&self.faults).push(Happened {
            fault,
            incarnation,
            from,
            to,
            over: clock::now(),
        });
    }

    /// Whether a fault of this length would still be over in time.
    fn fits(&self, step: &Step) -> bool {
        clock::now() + (step.ms as i64 + 500) * MS < self.end || step.fault == Fault::ClockStepped
    }

    fn lane(&self, steps: &[Step]) {
        for step in steps {
            self.wait_until(step.at);
            if !self.fits(step) {
                continue;
            }
            let span = self.arena.store.suffer(*step, &self.arena.dir);
            self.happened(step.fault, None, span);
        }
    }

    /// Starts the worker of a slot, for the `start`th time.
    fn start(&self, slot: usize, start: usize) -> Running {
        let arena = self.arena;
        let incarnation = arena.incarnations.fetch_add(1, Ordering::SeqCst) + 1;
        let language = match arena.rust_only {
            true => Language::Rust,
            false => SLOTS[slot],
        };
        let log = arena.dir.join(format!("log-{incarnation}"));
        let way = arena.store.way(slot, start);
        let orders = Orders {
            url: arena.store.url(way),
            log: log.clone(),
            ids: outputs::ids_of(&arena.dir, incarnation),
            gate: arena.dir.join("gate"),
            seed: self.seed ^ ((incarnation as u64) << 20),
            incarnation,
            slot: slot as u64,
            end: self.end,
            broken: arena.broken.filter(|_| language == Language::Rust),
        };
        let program = arena.programs.of(language);
        // It ends with the thread that started it, also while it is stopped.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .arg(program.get_program())
            .args(program.get_args())
            .args(orders.arguments())
            .env("LD_PRELOAD", &arena.programs.clock)
            .env("WALL_CLOCK_OFFSET", arena.dir.join("clock"))
            .env("SYNCGUARD_DEBUG", "true")
            .stdin(Stdio::null());
        let out = File::create(outputs::output_of(&arena.dir, incarnation)).expect("a file");
        command
            .stdout(out.try_clone().expect("a descriptor"))
            .stderr(out);
        Running {
            child: command.spawn().expect("a worker"),
            life: Life {
                incarnation,
                slot,
                language,
                way,
                records: Vec::new(),
                trouble: None,
            },
            log,
        }
    }

    /// Keeps a worker running, pauses it and kills it as the plan says.
    fn tend<'s, 'e>(&'s self, scope: &'s Scope<'s, 'e>, slot: usize, steps: &[Step]) {
        let mut starts = 0..;
        let mut start = || self.start(slot, starts.next().unwrap_or(0));
        let mut running = start();
        for step in steps {
            self.wait_until(step.at);
            if !self.fits(step) {
                continue;
            }
            match step.fault {
                Fault::WorkerPaused => {
                    let _ = kill(running.pid(), Signal::SIGSTOP);
                    let from = clock::now();
                    sleep_ms(step.ms);
                    let to = clock::now();
                    let _ = kill(running.pid(), Signal::SIGCONT);
                    self.happened(step.fault, Some(running.life.incarnation), (from, to));
                }
                _ => {
                    let _ = kill(running.pid(), Signal::SIGKILL);
                    let at = clock::now();
                    let life = running.reap(true);
                    self.happened(step.fault, Some(life.incarnation), (at, at));
                    for hold in open_holds(&life.records) {
                        scope.spawn(move || self.watch_dead(hold, at));
                    }
                    lock(&self.lives).push(life);
                    running = start();
                }
            }
        }
        let left = self.end - clock::now();
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
        let life = running.reap(false);
        lock(&self.lives).push(life);
    }

    /// Looks at the key of a dead holder until the lock is gone.
    fn watch_dead(&self, hold: Record, killed: i64) {
        let until = killed + hold.d + 20_000 * MS;
        while clock::now() < until {
            let begun = clock::now();
            if let Some(false) = self.is_held_with(hold.key, hold.b) {
                let free = clock::now();
                lock(&self.takeovers).push(Takeover {
                    key: hold.key,
                    killed,
                    ttl: hold.d,
                    free,
                    look: free - begun,
                });
                return;
            }
            sleep_ms(PROBE_MS);
        }
        lock(&self.takeovers).push(Takeover {
            key: hold.key,
            killed,
            ttl: hold.d,
            free: until,
            look: 0,
        });
    }

    /// Whether this key is held with this fence; nothing if the store does not answer.
    fn is_held_with(&self, key: i64, fence: i64) -> Option<bool> {
        thread_local! {
            static CLIENT: std::cell::OnceCell<Client> = const { std::cell::OnceCell::new() };
        }
        let url = self.arena.store.direct_url();
        CLIENT.with(|client| {
            let client = client.get_or_init(|| {
                let options = ClientOptions::new().operation_timeout(Duration::from_millis(500));
                Client::open_with(&url, &options).expect("a client")
            });
            let found = client.get_by_key(key_name(key)).ok()?;
            Some(found.is_some_and(|lock| lock.fence.get() as i64 == fence))
        })
    }

    fn evidence(self) -> Evidence {
        let lives = self.lives.into_inner().unwrap_or_default();
        let held = still_held(&self.arena.store, &lives);
        let stalls = lock(self.arena.stalls).clone();
        let secrets = outputs::search(&self.arena.dir, lives.iter().map(|life| life.incarnation));
        Evidence {
            kind: self.arena.store.kind,
            lives,
            faults: self.faults.into_inner().unwrap_or_default(),
            writes: self.arena.gate.take(),
            takeovers: self.takeovers.into_inner().unwrap_or_default(),
            held,
            secrets: secrets.lines,
            lock_ids: secrets.lock_ids,
            stalls,
        }
    }
}

/// The grants of a dead worker that it had not begun to release.
fn open_holds(records: &[Record]) -> Vec<Record> {
    let mut open: HashMap<i64, Record> = HashMap::new();
    for record in records {
        match record.kind {
            kind::GRANT | kind::GRANT_BARE => {
                open.insert(record.id, *record);
            }
            kind::RELEASING | kind::LOST => {
                open.remove(&record.id);
            }
            _ => {}
        }
    }
    open.into_values().collect()
}

/// The keys that are held although all workers have ended, and every lease of a killed one is over. A look is repeated: what a dying
/// worker sent last may still be on its way.
fn still_held(store: &Store, lives: &[Life]) -> Vec<i64> {
    let client = Client::open(&store.direct_url()).expect("a client");
    let mut keys: Vec<i64> = lives.iter().flat_map(keys_of).collect();
    keys.sort_unstable();
    keys.dedup();
    let until = clock::now() + (crate::worker::LONG_TTL_MS as i64 + 3_000) * MS;
    loop {
        keys.retain(|key| client.is_locked(key_name(*key)).unwrap_or(true));
        if keys.is_empty() || clock::now() > until {
            return keys;
        }
        sleep_ms(50);
    }
}

/// The keys of a worker that must be free in the end: all that it held, and, if it was not killed, those of its failed acquires.
fn keys_of(life: &Life) -> Vec<i64> {
    let ended = life.records.iter().any(|r| r.kind == kind::EXIT);
    let keys = life.records.iter().filter_map(|r| match r.kind {
        kind::GRANT | kind::GRANT_BARE => Some(r.key),
        kind::UNKNOWN if ended => Some(r.key),
        _ => None,
    });
    keys.collect()
}
