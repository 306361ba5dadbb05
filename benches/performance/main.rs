//! `make bench`: what a lock costs here, what it costs with no library, and what others cost. Prints, and writes
//! docs/performance.md with its charts. `QUICK=1` runs all of it in small, for its exit status; the page then goes to
//! target/bench. `BENCH_ONLY=paired,scale` runs some sections only. Fails if a contender errs, never because of a time.

mod beside;
mod callers;
mod chart;
mod contenders;
mod distance;
mod handoff;
mod longrun;
mod machine;
mod memory;
mod paired;
mod pgraw;
mod pin;
mod plan;
mod report;
mod scale;
mod servers;
mod session;
mod sqlite;
mod stats;
mod uncontended;
mod untold;
mod waiting;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use callers::Contender;
use contenders::Running;
use pin::{Cores, Place};
use plan::Plan;
use servers::Served;
use stats::{Figure, number, ratio};
use syncguard::{Backend, Client, ClientOptions, PostgresBackend};
use uncontended::{CALLERS, Measured};

/// What the sections share.
pub struct Bench {
    plan: Plan,
    cores: Cores,
    page: report::Page,
    versions: BTreeMap<&'static str, String>,
    targets: Vec<Vec<String>>,
    only: Option<Vec<String>>,
}

/// A server as a section sees it.
pub struct Server<'a> {
    name: &'a str,
    pid: Option<u32>,
}

impl Server<'_> {
    fn pin(&self, cores: &Cores, place: Place) {
        if let Some(pid) = self.pid {
            pin::tree(pid, &cores.server(place));
        }
    }
}

impl Bench {
    fn wants(&self, section: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|all| all.iter().any(|s| s == section))
    }

    fn target(&mut self, what: &str, target: &str, measured: Figure, met: bool) {
        self.target_shown(what, target, measured.show(), met);
    }

    fn target_shown(&mut self, what: &str, target: &str, measured: String, met: bool) {
        self.targets.push(vec![
            what.to_owned(),
            target.to_owned(),
            measured,
            if met { "met" } else { "missed" }.to_owned(),
        ]);
    }

    fn tried<T>(&mut self, what: &str, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|e| self.page.trouble(format!("{what}: {e}")))
            .ok()
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match &words[..] {
        ["serve", kind, ..] => {
            servers::serve(kind, &args[2..]);
            return ExitCode::SUCCESS;
        }
        ["worker", kind, url] => {
            worker::run(kind, url);
            return ExitCode::SUCCESS;
        }
        ["loop", kind, url, cycles] => return profile(kind, url, cycles),
        _ => {}
    }
    let begun = Instant::now();
    let mut bench = Bench {
        plan: Plan::new(plan::flag("QUICK")),
        cores: Cores::allowed(),
        page: report::Page::default(),
        versions: BTreeMap::new(),
        targets: Vec::new(),
        only: std::env::var("BENCH_ONLY")
            .ok()
            .map(|v| v.split(',').map(str::to_owned).collect()),
    };
    if let Err(e) = run(&mut bench) {
        bench.page.trouble(e);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let whole = !bench.plan.quick && bench.only.is_none();
    let folder = root.join(if whole { "docs" } else { "target/bench" });
    if let Err(e) = bench.page.write(&folder) {
        bench.page.trouble(e.to_string());
    }
    println!(
        "\nwritten to {} after {:.0} s",
        folder.join("performance.md").display(),
        begun.elapsed().as_secs_f64()
    );
    for line in &bench.page.missing {
        println!("not measured: {line}");
    }
    for line in &bench.page.troubles {
        println!("trouble: {line}");
    }
    if bench.page.troubles.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(bench: &mut Bench) -> Result<(), String> {
    let memory = Path::new("/dev/shm");
    let disk = std::env::temp_dir();
    let settings = [
        "fsync=on",
        "max_connections=500",
        "shared_buffers=256MB",
        "max_wal_size=4GB",
    ];
    let redis = Served::redis()?;
    let on_disk = Served::postgres(&disk, &settings)?;
    let on_tmpfs = Served::postgres(memory, &settings)?;
    for server in [&on_disk, &on_tmpfs] {
        let store = PostgresBackend::open(&server.postgres_url(), &ClientOptions::new())
            .map_err(|e| e.to_string())?;
        store.setup_schema(None).map_err(|e| e.to_string())?;
    }
    let sqlite_disk = tempfile::tempdir().map_err(|e| e.to_string())?;
    let sqlite_tmpfs = tempfile::tempdir_in(memory).map_err(|e| e.to_string())?;
    let sqlite_url = |dir: &Path| format!("sqlite:{}", dir.join("locks.db").display());

    let redis_url = redis.redis_url();
    let redis_entries = contenders::redis(&redis_url, &redis.socket.display().to_string());
    let disk_entries = contenders::postgres(&on_disk.postgres_url());
    let tmpfs_entries = contenders::postgres(&on_tmpfs.postgres_url());
    let redis_server = Server {
        name: "Redis",
        pid: Some(redis.pid()),
    };
    let disk_server = Server {
        name: "Postgres on disk",
        pid: Some(on_disk.pid()),
    };
    let tmpfs_server = Server {
        name: "Postgres on tmpfs",
        pid: Some(on_tmpfs.pid()),
    };

    head(
        bench,
        &[("Redis", &redis.version), ("Postgres", &on_disk.version)],
        &disk,
        memory,
    );

    if bench.wants("paired") {
        bench.page.heading(2, "What the library adds");
        let plan = &bench.plan;
        let text = format!(
            "One acquire and one release, one caller, client and server on one core: floor, verbs and `lock()` in one thread, \
             a cycle of each in turn, {} rounds of {} cycles. The floor sends the bytes the library sends, recorded from it, on a blocking \
             socket with one write and one read per call; for SQLite it runs the same statements. The verbs' caller makes an id for every grant, as `lock()` does. Unix sockets, unless the row says TCP; \"0.2 ms \
             each way\" is a relay that keeps every message as long as the network of a data centre would (a tenth of the cycles). Ratios are medians of the rounds' ratios.",
            plan.paired_rounds, plan.paired_cycles
        );
        bench.page.prose(&text);
        let mut rows = Vec::new();
        let far = distance::Relay::start(
            &on_tmpfs.postgres_socket(),
            on_tmpfs.port,
            Duration::from_micros(200),
        )?;
        let tcp = format!(
            "postgres://postgres@/postgres?host=127.0.0.1&port={}",
            on_tmpfs.port
        );
        let stores: [(&str, &Server<'_>, String, &[&str]); 8] = [
            (
                "Redis",
                &redis_server,
                redis_url.clone(),
                &["floor", "verbs", "lock"],
            ),
            (
                "Postgres on disk",
                &disk_server,
                on_disk.postgres_url(),
                &["floor", "verbs", "lock", "eight-trips"],
            ),
            (
                "Postgres on tmpfs",
                &tmpfs_server,
                on_tmpfs.postgres_url(),
                &["floor", "verbs", "lock", "eight-trips"],
            ),
            (
                "Postgres on tmpfs, across cores",
                &tmpfs_server,
                on_tmpfs.postgres_url(),
                &["floor", "verbs", "lock", "eight-trips"],
            ),
            (
                "Postgres on tmpfs, TCP across cores",
                &tmpfs_server,
                tcp,
                &["floor", "verbs", "lock", "eight-trips"],
            ),
            (
                "Postgres on tmpfs, 0.2 ms each way across cores",
                &tmpfs_server,
                far.url(),
                &["floor", "verbs", "lock", "eight-trips"],
            ),
            (
                "SQLite on disk",
                &Server {
                    name: "",
                    pid: None,
                },
                sqlite_url(sqlite_disk.path()),
                &["verbs", "floor", "lock"],
            ),
            (
                "SQLite on tmpfs",
                &Server {
                    name: "",
                    pid: None,
                },
                sqlite_url(sqlite_tmpfs.path()),
                &["verbs", "floor", "lock"],
            ),
        ];
        for (name, server, url, kinds) in stores {
            let place = if name.ends_with("across cores") {
                Place::Apart
            } else {
                Place::Together
            };
            server.pin(&bench.cores, place);
            pin::me(&bench.cores.client(place));
            // Where every trip takes half a millisecond, a tenth of the cycles takes as long.
            let cycles = if name.contains("each way") {
                bench.plan.paired_cycles.div_ceil(10)
            } else {
                bench.plan.paired_cycles
            };
            let rounds = paired::rounds(bench, kinds, &url, cycles);
            pin::me(&bench.cores.client(Place::Apart));
            let Some(rounds) = bench.tried(name, rounds) else {
                continue;
            };
            let of = |kind: &str| kinds.iter().position(|k| *k == kind).map(|i| &rounds[i]);
            let (Some(floor), Some(verbs), Some(lock)) = (of("floor"), of("verbs"), of("lock"))
            else {
                continue;
            };
            let (ba, cb) = (ratio(verbs, floor), ratio(lock, verbs));
            let extra: Vec<f64> = lock.iter().zip(verbs).map(|(l, v)| l - v).collect();
            let extra = Figure::of(&extra);
            rows.push(vec![
                name.to_owned(),
                Figure::of(floor).show(),
                Figure::of(verbs).show(),
                Figure::of(lock).show(),
                ba.show(),
                cb.show(),
                extra.show(),
                of("eight-trips").map_or("–".to_owned(), |e| Figure::of(e).show()),
            ]);
            let limit = if name.starts_with("SQLite") {
                1.15
            } else {
                1.05
            };
            bench.target(
                &format!("{name}: verbs ÷ floor, p50"),
                &format!("≤ {limit}"),
                ba,
                ba.median <= limit,
            );
            if name == "Redis" {
                bench.target(
                    "Redis: lock() ÷ verbs, p50",
                    "≤ 1.05",
                    cb,
                    cb.median <= 1.05,
                );
            }
            bench.target(
                &format!("{name}: lock() − verbs, µs"),
                "≤ 5 µs or 10 %",
                extra,
                extra.median <= 5.0 || cb.median <= 1.10,
            );
            if let Some(eight) = of("eight-trips") {
                let gain = ratio(eight, verbs);
                bench.target(
                    &format!("{name}: eight trips ÷ verbs, p50"),
                    "≥ 3",
                    gain,
                    gain.median >= 3.0,
                );
            }
        }
        bench.page.table(
            &[
                "store",
                "floor µs",
                "verbs µs",
                "lock() + drop µs",
                "verbs ÷ floor",
                "lock() ÷ verbs",
                "lock() − verbs µs",
                "eight trips µs",
            ],
            &rows,
        );
    }

    if bench.wants("paired") {
        let text = format!(
            "What it costs to tell waiters when there are none: the cycle of the floor, against the same with a release that tells nobody (the \
             script without its `PUBLISH`, the function without its try for the waiters' lock and its `pg_notify`), {} rounds of {} cycles in \
             turn. The last column compares two of the same and shows what the method cannot tell apart.",
            bench.plan.paired_rounds, bench.plan.paired_cycles
        );
        bench.page.prose(&text);
        let mut rows = Vec::new();
        let port = on_tmpfs.port;
        let stores = [
            (
                "Redis",
                &redis_server,
                session::Protocol::Redis,
                redis.socket.clone(),
                0,
            ),
            (
                "Postgres on tmpfs",
                &tmpfs_server,
                session::Protocol::Postgres,
                on_tmpfs.postgres_socket(),
                port,
            ),
        ];
        for (name, server, protocol, socket, port) in stores {
            server.pin(&bench.cores, Place::Together);
            pin::me(&bench.cores.client(Place::Together));
            let measured = untold::rounds(
                protocol,
                &socket,
                port,
                bench.plan.paired_rounds,
                bench.plan.paired_cycles,
            );
            pin::me(&bench.cores.client(Place::Apart));
            let Some([told, untold, again]) = bench.tried(name, measured) else {
                continue;
            };
            let cost = ratio(&told, &untold);
            rows.push(vec![
                name.to_owned(),
                Figure::of(&told).show(),
                Figure::of(&untold).show(),
                cost.show3(),
                ratio(&told, &again).show3(),
            ]);
            bench.target_shown(
                &format!("{name}: cycle ÷ the same that tells nobody, p50"),
                "≤ 1.02",
                cost.show3(),
                cost.median <= 1.02,
            );
        }
        bench.page.table(
            &["store", "cycle µs", "telling nobody µs", "÷", "same ÷ same"],
            &rows,
        );
    }

    if bench.wants("paired") {
        let nobody = Server {
            name: "",
            pid: None,
        };
        let stores = [
            ("Redis", &redis_server, redis_url.clone(), Place::Together),
            (
                "Postgres on disk",
                &disk_server,
                on_disk.postgres_url(),
                Place::Together,
            ),
            (
                "Postgres on tmpfs",
                &tmpfs_server,
                on_tmpfs.postgres_url(),
                Place::Together,
            ),
            (
                "Postgres on tmpfs, across cores",
                &tmpfs_server,
                on_tmpfs.postgres_url(),
                Place::Apart,
            ),
            (
                "SQLite on tmpfs",
                &nobody,
                sqlite_url(sqlite_tmpfs.path()),
                Place::Together,
            ),
        ];
        beside::report(bench, &stores);
    }

    if bench.wants("cycles") {
        bench.page.heading(2, "Uncontended");
        let text = format!(
            "Acquire and release of keys nobody else wants. Every contender is a process of its own in its own runtime; {} interleaved \
             rounds of {} ms, for one caller three times as many of a third. Callers are threads (goroutines, promises, tasks) of one process that share one client. Go programs run \
             with GOMAXPROCS={}, the cores of this machine and at least 2; one row shows what 1 costs, which Go takes by itself when it \
             is pinned to one core: a call of C that lasts 20 µs or more may then lose the only processor, for two switches of threads.",
            bench.plan.cycle_rounds,
            bench.plan.cycle_time.as_millis(),
            pin::count().max(2)
        );
        bench.page.prose(&text);
        let mut entries = redis_entries.clone();
        entries.extend(contenders::go_alone(&redis_entries));
        let rows = uncontended::measure(bench, &redis_server, &entries, &CALLERS);
        throughput_targets(bench, "Redis", &rows);
        c_targets(bench, "Redis", &rows);
        let rows = uncontended::measure(bench, &disk_server, &disk_entries, &CALLERS);
        throughput_targets(bench, "Postgres on disk", &rows);
        c_targets(bench, "Postgres on disk", &rows);
        let rows = uncontended::measure(bench, &tmpfs_server, &tmpfs_entries, &CALLERS);
        throughput_targets(bench, "Postgres on tmpfs", &rows);
        c_targets(bench, "Postgres on tmpfs", &rows);
        let entries = contenders::sqlite(&sqlite_url(sqlite_disk.path()));
        uncontended::measure(
            bench,
            &Server {
                name: "SQLite on disk",
                pid: None,
            },
            &entries,
            &[1],
        );
    }

    if bench.wants("handoff") {
        bench.page.heading(2, "Contended handoff");
        let text = format!(
            "Eight callers want one key, and each holds it for 1 ms; ours share one client unless the row says otherwise, peers have what each of \
             their callers needs; {} interleaved rounds of {} ms. A handoff runs from \
             the moment a release is begun to the moment another caller knows of its grant; whoever has released comes back after that. In \
             the greedy loop everybody comes back at once: grants per caller of one round show who starves. A burst is eight callers that \
             come together, on connections that were used before, and take the lock once each. \"Default\" is what each library does if nothing is said; \"tuned\" is a try every \
             2 ms without end.",
            bench.plan.rounds,
            bench.plan.contend_time.as_millis()
        );
        bench.page.prose(&text);
        let and_apart = |entries: &[contenders::Entry], url: &str| {
            let mut entries = entries.to_vec();
            entries.push(contenders::apart(url));
            entries
        };
        let entries = and_apart(&redis_entries, &redis_url);
        handoff::measure(bench, &redis_server, &entries);
        let entries = and_apart(&tmpfs_entries, &on_tmpfs.postgres_url());
        handoff::measure(bench, &tmpfs_server, &entries);
        let entries = contenders::sqlite(&sqlite_url(sqlite_disk.path()));
        handoff::measure(
            bench,
            &Server {
                name: "SQLite on disk",
                pid: None,
            },
            &entries,
        );
    }

    if bench.wants("waiting") {
        bench.page.heading(2, "Waiting");
        let text = format!(
            "A hundred callers wait for a lock that is held all the time, with no end to their patience; after {} ms the server's requests are \
             counted in windows of {} ms. For Redis a script is one request; for Postgres a transaction is.",
            bench.plan.wait_settle.as_millis(),
            bench.plan.wait_window.as_millis()
        );
        bench.page.prose(&text);
        waiting::measure(
            bench,
            &redis_server,
            &redis_entries,
            &mut || redis_requests(&redis),
            &mut || redis_cli(&redis, &["FLUSHALL"]).map(drop),
        );
        let mut admin = pgraw::Session::open(&on_tmpfs.postgres_socket())?;
        let mut last = 0.0;
        let mut cleaner = pgraw::Session::open(&on_tmpfs.postgres_socket())?;
        waiting::measure(
            bench,
            &tmpfs_server,
            &tmpfs_entries,
            &mut || {
                let rows = admin.simple("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'")?;
                let total: f64 = rows
                    .first()
                    .and_then(|r| r[0].as_deref()?.parse().ok())
                    .ok_or("no count")?;
                Ok(total - std::mem::replace(&mut last, total))
            },
            &mut || cleaner.simple("DELETE FROM syncguard_locks").map(drop),
        );
    }

    if bench.wants("scale") {
        bench.page.heading(2, "Scale");
        bench.page.prose("One cycle of the verbs with that many other locks held, one caller, interleaved rounds.");
        let counts = bench.plan.others;
        scale::measure(bench, &redis_server, &|n| {
            scale::redis(&redis.socket, counts, n)
        });
        let url = on_tmpfs.postgres_url();
        let grown = scale::measure(bench, &tmpfs_server, &|n| {
            scale::postgres(&url, &on_tmpfs.postgres_socket(), n)
        });
        if let (Some(grown), Some(most)) = (grown, counts.last()) {
            let figure = Figure {
                median: grown,
                low: grown,
                high: grown,
            };
            bench.target(
                &format!(
                    "Postgres: cycle beside {} other locks ÷ none",
                    number(*most as f64)
                ),
                "≤ 1.3",
                figure,
                grown <= 1.3,
            );
        }
        scale::measure(
            bench,
            &Server {
                name: "SQLite on tmpfs",
                pid: None,
            },
            &|n| scale::sqlite(sqlite_tmpfs.path(), n),
        );
    }

    if bench.wants("longrun") {
        let (url, socket) = (on_tmpfs.postgres_url(), on_tmpfs.postgres_socket());
        longrun::measure(bench, &tmpfs_server, &url, &socket);
    }

    if bench.wants("memory") {
        guards(bench, &redis_url, &redis_server);
        redis_cli(&redis, &["FLUSHALL"])?;
    }
    tail(bench);
    Ok(())
}

fn head(bench: &mut Bench, versions: &[(&str, &String)], disk: &Path, memory: &Path) {
    bench.page.heading(1, "Performance");
    let mut text = "Written by `make bench`, which starts the servers it measures. Every figure is the median of interleaved rounds with \
                    its quartiles in brackets; ratios to the floor are medians of the rounds' ratios. A cycle is one acquire and one release."
        .to_owned();
    if bench.plan.quick {
        text.push_str(
            "\n\n**A quick run: it shows that everything works, and its figures mean nothing.**",
        );
    }
    bench.page.prose(&text);
    let mut rows: Vec<Vec<String>> = machine::facts()
        .into_iter()
        .map(|(n, v)| vec![n, v])
        .collect();
    for (name, version) in versions {
        rows.push(vec![(*name).to_owned(), (*version).clone()]);
    }
    rows.push(vec![
        "sockets".to_owned(),
        "unix, for everybody, unless a row says TCP".to_owned(),
    ]);
    rows.push(vec!["pinned".to_owned(), bench.cores.describe()]);
    for (name, dir) in [("fdatasync on disk", disk), ("fdatasync on tmpfs", memory)] {
        let shown = machine::fsync(dir).map_or_else(|e| e, |f| format!("{} µs", f.show()));
        rows.push(vec![name.to_owned(), shown]);
    }
    bench.page.table(&["", ""], &rows);
}

fn tail(bench: &mut Bench) {
    bench.page.heading(2, "Targets");
    let rows = std::mem::take(&mut bench.targets);
    bench.page.table(&["what", "target", "measured", ""], &rows);
    bench.page.heading(2, "Contenders");
    let rows: Vec<Vec<String>> = bench
        .versions
        .iter()
        .map(|(n, v)| vec![(*n).to_owned(), v.clone()])
        .collect();
    bench.page.table(&["contender", "version"], &rows);
    for line in bench.page.missing.clone() {
        bench.page.prose(&format!("- {line}"));
    }
    let findings = include_str!("findings.md");
    if !findings.trim().is_empty() {
        bench.page.heading(2, "Where the time goes");
        bench.page.prose(findings.trim());
    }
}

fn throughput_targets(bench: &mut Bench, server: &str, rows: &[Measured]) {
    let find = |name: &str| rows.iter().find(|m| m.entry.name.starts_with(name));
    if let (Some(floor), Some(verbs)) = (find("floor"), find("syncguard verbs")) {
        for (c, callers) in CALLERS.iter().enumerate().skip(1) {
            let part = ratio(&verbs.at[c].rate, &floor.at[c].rate);
            bench.target(
                &format!("{server}: throughput of verbs ÷ floor, {callers} callers"),
                "≥ 0.95",
                part,
                part.median >= 0.95,
            );
        }
    }
}

/// What the C interface adds to a cycle of one caller.
fn c_targets(bench: &mut Bench, server: &str, rows: &[Measured]) {
    let find = |name: &str| rows.iter().find(|m| m.entry.name == name);
    if let (Some(rust), Some(c)) = (find("syncguard lock()"), find("C syncguard_lock")) {
        let (rust, c) = (&rust.at[0].p50, &c.at[0].p50);
        let part = ratio(c, rust);
        let more: Vec<f64> = c.iter().zip(rust).map(|(c, r)| c - r).collect();
        let more = Figure::of(&more);
        let met = more.median <= 2.0 || part.median <= 1.02;
        let target = "≤ 2 µs or 2 %";
        bench.target(&format!("{server}: C ÷ lock(), p50"), target, part, met);
        bench.target(&format!("{server}: C − lock(), µs"), target, more, met);
    }
}

fn guards(bench: &mut Bench, url: &str, server: &Server<'_>) {
    bench.page.heading(2, "Guards");
    bench.page.prose(
        "Resident memory per held lock and threads of the process, on Redis. A heartbeat starts when the first renewal is due; \
         \"renewing\" is measured when all have started.",
    );
    server.pin(&bench.cores, Place::Apart);
    let entries = contenders::redis(url, "");
    let Some(entry) = entries.iter().find(|e| e.name == "syncguard lock()") else {
        return;
    };
    let mut rows = Vec::new();
    for &count in bench.plan.guards {
        for (mode, shown) in [("quiet", "not yet renewing"), ("beating", "renewing")] {
            let (mut bytes, mut threads) = (Vec::new(), Vec::new());
            for _ in 0..bench.plan.rounds {
                // A process of its own each time: memory given back would be counted for the next.
                let answer = Running::start(entry).and_then(|mut r| {
                    r.pin(&bench.cores, Place::Apart);
                    r.ask(&format!("hold {count} {mode}"))
                });
                let Some(answer) = bench.tried("guards", answer) else {
                    continue;
                };
                bytes.push(answer[0]);
                threads.push(answer[1]);
                // The locks of a process that was ended would be in the way of the next.
                let cleared = redis_flush(url);
                bench.tried("guards", cleared);
            }
            rows.push(vec![
                number(count as f64),
                shown.to_owned(),
                Figure::of(&bytes).show(),
                Figure::of(&threads).show(),
            ]);
        }
    }
    bench.page.table(
        &["guards", "heartbeat", "bytes per guard", "threads"],
        &rows,
    );
}

/// A plain loop of one contender, for a profiler.
fn profile(kind: &str, url: &str, cycles: &str) -> ExitCode {
    let result = Client::open(url)
        .and_then(|c| c.setup_schema())
        .map_err(|e| e.to_string())
        .and_then(|()| Contender::new(kind, url))
        .and_then(|c| c.crowd(1))
        .and_then(|mut crowd| {
            for _ in 0..cycles.parse().unwrap_or(0) {
                crowd[0].acquire()?;
                crowd[0].release()?;
            }
            Ok(())
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn redis_flush(url: &str) -> Result<(), String> {
    let path = url.strip_prefix("redis+unix://").ok_or("no socket")?;
    redis_call(Path::new(path), &["FLUSHALL"]).map(drop)
}

fn redis_cli(server: &Served, command: &[&str]) -> Result<String, String> {
    redis_call(&server.socket, command)
}

fn redis_call(socket: &Path, command: &[&str]) -> Result<String, String> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).map_err(|e| e.to_string())?;
    let mut out = format!("*{}\r\n", command.len());
    for word in command {
        out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream
        .write_all(out.as_bytes())
        .map_err(|e| e.to_string())?;
    let mut reply = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while session::Protocol::Redis.answers(&reply) < 1 {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Err("Redis hung up".to_owned()),
            Ok(n) => reply.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// What clients have asked for since this was called last. Commands inside of scripts are counted by the server too and are no requests.
fn redis_requests(server: &Served) -> Result<f64, String> {
    let info = redis_cli(server, &["INFO", "commandstats"])?;
    let (mut scripts, mut all) = (0.0, 0.0);
    for line in info.lines().filter_map(|l| l.strip_prefix("cmdstat_")) {
        let (name, rest) = line.split_once(":calls=").unwrap_or((line, "0"));
        let calls: f64 = rest
            .split(',')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0);
        match name {
            "info" | "config|resetstat" => {}
            "eval" | "evalsha" => {
                scripts += calls;
                all += calls;
            }
            _ => all += calls,
        }
    }
    redis_cli(server, &["CONFIG", "RESETSTAT"])?;
    Ok(if scripts > 0.0 { scripts } else { all })
}
