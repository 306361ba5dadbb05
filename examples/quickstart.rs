//! Two workers, one lock, an SQLite file: what syncguard does, told in about eight seconds. Run it with `make demo`.
//!
//! The workers are processes of their own: this program, started again with the word `worker`.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use syncguard::{Backoff, Client, ErrorCode, LockOptions};

const KEY: &str = "report:nightly";
const TTL: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, url, rounds] = args.as_slice()
        && role == "worker"
    {
        return worker(name, url, rounds.parse()?);
    }
    let folder = Folder::new()?;
    story(&format!("sqlite:{}", folder.0.join("locks.db").display()))
}

/// Takes the lock again and again, and says so. With zero rounds it holds it until somebody kills it.
fn worker(name: &str, url: &str, rounds: u32) -> Result<(), Box<dyn Error>> {
    let client = Client::open(url)?;
    let options = LockOptions::new()
        .ttl(TTL)
        .acquire_timeout(Duration::from_secs(30))
        .retry_delay(Duration::from_millis(20))
        .backoff(Backoff::Fixed);
    for _ in 0..rounds.max(1) {
        let guard = client.lock_with(KEY, &options)?;
        println!("{name} holds the lock, fence {}", guard.fence());
        if rounds == 0 {
            guard.wait_lost();
        }
        thread::sleep(Duration::from_millis(60));
        drop(guard);
        thread::sleep(Duration::from_millis(60));
    }
    Ok(())
}

fn story(url: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::open(url)?;

    say(
        "Two workers want the same lock. One has it at a time, and every grant has a larger fence:",
    );
    let (tell, told) = mpsc::channel();
    let mut workers = Vec::new();
    for name in ["Ann", "Bob"] {
        let (child, says) = start(name, url, 3)?;
        let tell = tell.clone();
        workers.push((
            child,
            thread::spawn(move || says.for_each(|line| drop(tell.send(line)))),
        ));
    }
    drop(tell);
    for line in told {
        println!("    {}", line?);
    }
    for (mut child, listener) in workers {
        child.wait()?;
        listener.join().map_err(|_| "a listener panicked")?;
    }

    say(
        "Ann takes it and is killed. No program releases it, so it stays hers until its TTL of 2 s is over:",
    );
    let (mut ann, mut ann_says) = start("Ann", url, 0)?;
    println!("    {}", ann_says.next().ok_or("Ann says nothing")??);
    ann.kill()?;
    ann.wait()?;
    println!(
        "    Ann is dead; is it still locked? {}",
        client.get_by_key(KEY)?.is_some()
    );
    match client.lock_with(KEY, &LockOptions::new().acquire_timeout(Duration::ZERO)) {
        Err(e) if e.code() == ErrorCode::AcquisitionTimeout => {
            println!("    an impatient caller is told: {e}")
        }
        other => return Err(format!("expected a held lock, got {other:?}").into()),
    }
    let begun = Instant::now();
    let (mut bob, mut bob_says) = start("Bob", url, 1)?;
    println!(
        "    {} (after {:.1} s)",
        bob_says.next().ok_or("Bob says nothing")??,
        begun.elapsed().as_secs_f32()
    );
    bob.wait()?;

    say(
        "A guard renews its lock in the background. One that cannot, knows without asking anybody that it was lost:",
    );
    let options = LockOptions::new()
        .ttl(Duration::from_secs(1))
        .no_heartbeat()
        .on_lost(|why| println!("    on_lost: {why}"));
    let guard = client.lock_with(KEY, &options)?;
    println!(
        "    we hold it with fence {} and may count on it for {:?}",
        guard.fence(),
        guard.remaining()
    );
    if !guard.wait_lost_for(Duration::from_secs(10)) {
        return Err("the lock should have been lost".into());
    }
    println!(
        "    lost: {}, remaining: {:?}",
        guard.is_lost(),
        guard.remaining()
    );
    // The callback has a thread of its own; a release would discard it if it had not begun.
    thread::sleep(Duration::from_millis(100));
    drop(guard);

    say(
        "What protects the data is the fence: let the resource refuse one that is smaller than what it has seen.",
    );
    Ok(())
}

fn say(text: &str) {
    println!("\n{text}");
}

/// A worker, and what it says.
type Worker = (Child, Lines<BufReader<ChildStdout>>);

fn start(name: &str, url: &str, rounds: u32) -> Result<Worker, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["worker", name, url, &rounds.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    Ok((child, BufReader::new(output).lines()))
}

/// A folder that is gone at the end of the story.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("syncguard-quickstart-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
