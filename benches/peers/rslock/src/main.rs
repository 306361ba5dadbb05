//! The line protocol of benches/performance/worker.rs for rslock.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rslock::{Lock, LockError, LockManager};

const HELD: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Caller {
    manager: LockManager,
    key: String,
    /// `acquire`, which goes on for ever, and not `lock`, which gives up.
    patient: bool,
}

impl Caller {
    async fn acquire(&self) -> Result<Option<Lock>, String> {
        let key = self.key.as_bytes();
        let granted = if self.patient {
            self.manager.acquire_no_guard(key, HELD).await
        } else {
            self.manager.lock(key, HELD).await
        };
        match granted {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Unavailable) => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    async fn release(&self, lock: Lock) {
        self.manager.unlock(&lock).await;
    }
}

struct Worker {
    url: String,
    shared: LockManager,
    crowds: HashMap<usize, Vec<Caller>>,
}

type Numbers = Vec<f64>;

fn at(sorted: &[f64], part: f64) -> f64 {
    match sorted {
        [] => f64::NAN,
        all => all[((all.len() - 1) as f64 * part).round() as usize],
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

impl Worker {
    fn rival(&self, key: &str, wait: &str) -> Caller {
        let mut manager = LockManager::new(vec![self.url.as_str()]);
        if wait == "tuned" {
            manager.set_retry(u32::MAX, Duration::from_millis(2));
        }
        Caller {
            manager,
            key: key.to_owned(),
            patient: wait != "default",
        }
    }

    async fn answer(&mut self, words: &[&str]) -> Result<Numbers, String> {
        let n = |i: usize| words[i].parse::<u64>().map_err(|e| e.to_string());
        match words[0] {
            "cycles" => {
                let count = n(1)? as usize;
                let shared = &self.shared;
                let crowd = self.crowds.entry(count).or_insert_with(|| {
                    (0..count)
                        .map(|i| Caller {
                            manager: shared.clone(),
                            key: format!("bench-{i:08}"),
                            patient: false,
                        })
                        .collect()
                });
                cycles(crowd.clone(), Duration::from_millis(n(2)?)).await
            }
            how @ ("contend" | "handoff") => {
                let rivals = (0..n(1)?)
                    .map(|_| self.rival("bench-contended", words[4]))
                    .collect();
                contend(
                    rivals,
                    Duration::from_micros(n(2)?),
                    Duration::from_millis(n(3)?),
                    how == "handoff",
                )
                .await
            }
            "burst" => {
                let rivals = (0..n(1)?)
                    .map(|_| self.rival("bench-contended", words[3]))
                    .collect();
                burst(rivals, Duration::from_micros(n(2)?)).await
            }
            "wait" => {
                let holder = self.rival("bench-waited", words[2]);
                holder
                    .acquire()
                    .await?
                    .ok_or("the holder was not granted its lock")?;
                for _ in 0..n(1)? {
                    let waiter = self.rival("bench-waited", words[2]);
                    tokio::spawn(async move { waiter.acquire().await });
                }
                Ok(Vec::new())
            }
            other => Err(format!("no such request: {other}")),
        }
    }
}

async fn cycles(crowd: Vec<Caller>, time: Duration) -> Result<Numbers, String> {
    async fn work(caller: Caller, time: Duration) -> Result<(Vec<f64>, Instant), String> {
        let mut times = Vec::new();
        let begun = Instant::now();
        let mut last = begun;
        while last - begun < time {
            let lock = caller
                .acquire()
                .await?
                .ok_or("a lock that no other caller wants was taken")?;
            caller.release(lock).await;
            let now = Instant::now();
            times.push((now - last).as_nanos() as f64);
            last = now;
        }
        Ok((times, last))
    }
    let begun = Instant::now();
    let tasks: Vec<_> = crowd
        .into_iter()
        .map(|c| tokio::spawn(work(c, time)))
        .collect();
    let (mut times, mut last) = (Vec::new(), begun);
    for task in tasks {
        let (own, end) = task.await.map_err(|e| e.to_string())??;
        times.extend(own);
        last = last.max(end);
    }
    let times = sorted(times);
    Ok(vec![
        times.len() as f64,
        (last - begun).as_nanos() as f64,
        at(&times, 0.5),
        at(&times, 0.99),
    ])
}

async fn contend(
    rivals: Vec<Caller>,
    hold: Duration,
    time: Duration,
    polite: bool,
) -> Result<Numbers, String> {
    let last: Arc<Mutex<Option<(usize, Instant)>>> = Arc::default();
    let over = Arc::new(AtomicBool::new(false));
    let total = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + time;
    let tasks: Vec<_> = rivals
        .into_iter()
        .enumerate()
        .map(|(me, caller)| {
            let (last, over, total) = (Arc::clone(&last), Arc::clone(&over), Arc::clone(&total));
            tokio::spawn(async move {
                let (mut grants, mut gave_up, mut handoffs) = (0u64, 0u64, Vec::new());
                while Instant::now() < end && !over.load(Ordering::Relaxed) {
                    let Some(lock) = caller.acquire().await? else {
                        gave_up += 1;
                        continue;
                    };
                    let granted = Instant::now();
                    if granted >= end {
                        caller.release(lock).await;
                        break;
                    }
                    if let Some((by, at)) = *last.lock().unwrap()
                        && by != me
                    {
                        handoffs.push((granted - at).as_nanos() as f64);
                    }
                    grants += 1;
                    let mine = total.fetch_add(1, Ordering::SeqCst) + 1;
                    tokio::time::sleep(hold).await;
                    *last.lock().unwrap() = Some((me, Instant::now()));
                    caller.release(lock).await;
                    while polite && total.load(Ordering::SeqCst) == mine && Instant::now() < end {
                        tokio::time::sleep(Duration::from_micros(50)).await;
                    }
                }
                over.store(true, Ordering::Relaxed);
                Ok::<_, String>((grants, gave_up, handoffs))
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.map_err(|e| e.to_string())??);
    }
    let handoffs = sorted(all.iter().flat_map(|a| a.2.clone()).collect());
    Ok(vec![
        all.iter().map(|a| a.0).sum::<u64>() as f64,
        time.as_nanos() as f64,
        handoffs.len() as f64,
        at(&handoffs, 0.5),
        at(&handoffs, 0.99),
        all.iter().map(|a| a.0).min().unwrap_or(0) as f64,
        all.iter().map(|a| a.0).max().unwrap_or(0) as f64,
        all.iter().map(|a| a.1).sum::<u64>() as f64,
    ])
}

async fn burst(rivals: Vec<Caller>, hold: Duration) -> Result<Numbers, String> {
    let begun = Instant::now();
    let tasks: Vec<_> = rivals
        .into_iter()
        .map(|caller| {
            tokio::spawn(async move {
                let mut gave_up = 0u64;
                let lock = loop {
                    match caller.acquire().await? {
                        Some(lock) => break lock,
                        None => gave_up += 1,
                    }
                };
                tokio::time::sleep(hold).await;
                caller.release(lock).await;
                Ok::<_, String>(gave_up)
            })
        })
        .collect();
    let mut gave_up = 0;
    for task in tasks {
        gave_up += task.await.map_err(|e| e.to_string())??;
    }
    Ok(vec![begun.elapsed().as_nanos() as f64, gave_up as f64])
}

#[tokio::main]
async fn main() {
    let socket = std::env::args().nth(1).expect("the server's socket");
    let url = format!("redis+unix://{socket}");
    let mut worker = Worker {
        shared: LockManager::new(vec![url.as_str()]),
        url,
        crowds: HashMap::new(),
    };
    println!("ready rslock 0.10.0 (tokio)");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match worker.answer(&words).await {
            Ok(numbers) => {
                let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
                println!("ok {}", words.join(" "));
            }
            Err(e) => println!("error {}", e.replace('\n', " ")),
        }
        let _ = std::io::stdout().flush();
    }
    std::process::exit(0);
}
