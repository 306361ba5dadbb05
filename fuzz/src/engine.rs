//! Runs a target over its corpus and over changed inputs, with limits on the time and the memory of each execution.
//!
//! A finding is a panic on any thread, also one that the library has caught; an execution without an end; and one that takes too much
//! memory. The input is kept in a file.

use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::allocation;
use crate::mutate::Random;

/// A function of bytes, and what the harness must know of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of the folder of its corpus.
    pub name: &'static str,
    /// Panics if a promise is broken. The answer stands for what happened.
    pub run: fn(&[u8]) -> u64,
    /// Words that inputs are made of.
    pub words: &'static [&'static [u8]],
    /// The longest input.
    pub max_len: usize,
    /// How many executions a test of a few seconds makes.
    pub short: u64,
    /// The most memory that one execution may take, in bytes.
    pub memory: usize,
}

/// How a target is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many executions, those of the corpus included.
    pub runs: u64,
    /// What decides the changes.
    pub seed: u64,
    /// The folder with a folder of inputs for every target.
    pub corpus: PathBuf,
    /// Where inputs of findings go.
    pub findings: PathBuf,
    /// An execution that takes longer is one without an end.
    pub limit: Duration,
}

/// What a run without a finding has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many inputs were executed.
    pub executions: u64,
    /// How many of them were files of the corpus.
    pub corpus: usize,
    /// How many different things happened.
    pub outcomes: usize,
    /// How long it took.
    pub took: Duration,
}

/// An input that the library does not take well.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What happened.
    pub what: String,
    /// Where the input is.
    pub file: PathBuf,
    /// How long the run took until then.
    pub took: Duration,
    /// How many inputs were executed, that one included.
    pub executions: u64,
}

/// An execution takes milliseconds; the proof of a password with the most rounds that are allowed takes a second or two.
pub const LIMIT: Duration = Duration::from_secs(30);
/// How many inputs with a new outcome are kept.
const MAX_KEPT: usize = 4096;

static PANICS: AtomicU64 = AtomicU64::new(0);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts panics on all threads. Those of a target are told as a finding and not printed.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !thread::current()
                .name()
                .is_some_and(|name| name.starts_with("fuzz "))
            {
                before(info);
            }
            PANICS.fetch_add(1, SeqCst);
            *lock(&LAST_PANIC) = info.to_string().replace('\n', " ");
        }));
    });
}

/// What the thread that runs a target shows of itself.
#[derive(Default)]
struct Progress {
    /// How many executions have begun.
    begun: AtomicU64,
    /// The input of the execution that has begun, and when it did.
    current: Mutex<Option<(Vec<u8>, Instant)>>,
}

impl Target {
    /// Runs the target as `plan` says.
    ///
    /// # Errors
    /// The first input that is not taken well.
    pub fn fuzz(&'static self, plan: &Plan) -> Result<Report, Finding> {
        count_panics();
        assert!(
            allocation::counts(),
            "the program does not count its memory"
        );
        let progress = Arc::new(Progress::default());
        let (tell, end) = channel();
        let begun = Instant::now();
        let worker = {
            let (progress, plan) = (Arc::clone(&progress), plan.clone());
            thread::Builder::new()
                .name(format!("fuzz {}", self.name))
                .spawn(move || self.work(&plan, &progress, &tell))
                .expect("a thread can be started")
        };
        loop {
            match end.recv_timeout(Duration::from_millis(50)) {
                Ok(Ok(mut report)) => {
                    let _ = worker.join();
                    report.took = begun.elapsed();
                    return Ok(report);
                }
                Ok(Err((what, input))) => {
                    return Err(self.finding(plan, what, &input, &progress, begun));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let current = lock(&progress.current).clone();
                    if let Some((input, since)) = current
                        && since.elapsed() > plan.limit
                    {
                        // The thread is left as it is: it cannot be ended.
                        let what = format!("no end within {} ms", plan.limit.as_millis());
                        return Err(self.finding(plan, what, &input, &progress, begun));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "the harness itself failed on {}: {}",
                        self.name,
                        lock(&LAST_PANIC)
                    );
                }
            }
        }
    }

    fn work(
        &self,
        plan: &Plan,
        progress: &Progress,
        tell: &Sender<Result<Report, (String, Vec<u8>)>>,
    ) {
        let mut corpus = read_corpus(&plan.corpus.join(self.name));
        let mut report = Report {
            executions: 0,
            corpus: corpus.len(),
            outcomes: 0,
            took: Duration::ZERO,
        };
        let mut random = Random::new(plan.seed);
        let mut seen = HashSet::new();
        let files = corpus.len() as u64;
        // All of the corpus, also if fewer runs were asked for.
        while report.executions < plan.runs.max(files) {
            let from_corpus = usize::try_from(report.executions)
                .ok()
                .and_then(|n| corpus.get(n));
            let input = match from_corpus {
                Some(input) if report.executions < files => input.clone(),
                _ => random.input(&corpus, self.words, self.max_len),
            };
            *lock(&progress.current) = Some((input.clone(), Instant::now()));
            progress.begun.fetch_add(1, SeqCst);
            match self.execute(&input) {
                Ok(outcome) => {
                    if seen.insert(outcome) && report.executions >= files && corpus.len() < MAX_KEPT
                    {
                        corpus.push(input);
                    }
                }
                Err(what) => {
                    let _ = tell.send(Err((what, input)));
                    return;
                }
            }
            *lock(&progress.current) = None;
            report.executions += 1;
        }
        report.outcomes = seen.len();
        let _ = tell.send(Ok(report));
    }

    /// Executes one input.
    fn execute(&self, input: &[u8]) -> Result<u64, String> {
        let panics = PANICS.load(SeqCst);
        let mark = allocation::mark();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(input)));
        let peak = allocation::peak_over(mark);
        if PANICS.load(SeqCst) != panics || outcome.is_err() {
            return Err(lock(&LAST_PANIC).clone());
        }
        if peak > self.memory {
            return Err(format!(
                "{peak} bytes of memory, and {} are allowed",
                self.memory
            ));
        }
        outcome.map_err(|_| String::new())
    }

    fn finding(
        &self,
        plan: &Plan,
        what: String,
        input: &[u8],
        progress: &Progress,
        begun: Instant,
    ) -> Finding {
        let name = format!("{}-{:016x}", self.name, crate::outcome(input));
        let file = plan.findings.join(name);
        let written = fs::create_dir_all(&plan.findings).and_then(|()| fs::write(&file, input));
        written.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        Finding {
            what,
            file,
            took: begun.elapsed(),
            executions: progress.begun.load(SeqCst),
        }
    }
}

/// The inputs in a folder, in the order of their names.
pub(crate) fn read_corpus(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    let read =
        |path: &PathBuf| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    files.iter().map(read).collect()
}
