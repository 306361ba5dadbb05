//! `make fuzz`: runs the targets and prints what each has done. `make fuzz-seeds` writes the inputs that were made by hand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use syncguard_fuzz::engine::{LIMIT, Plan, Target};
use syncguard_fuzz::targets::TARGETS;
use syncguard_fuzz::{allocation, clean_up, page, seeds};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

const USAGE: &str =
    "usage: fuzz run [--target NAME] [--runs 1000000] [--seed 1] [--page FILE] | fuzz seeds";

struct Options {
    only: Option<String>,
    plan: Plan,
    page: Option<PathBuf>,
    figures: PathBuf,
}

fn read_options(args: &[String]) -> Result<Options, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let left = root.join("../target/fuzz");
    let mut options = Options {
        only: None,
        plan: Plan {
            runs: 1_000_000,
            seed: 1,
            corpus: root.join("corpus"),
            findings: left.join("findings"),
            limit: LIMIT,
        },
        page: None,
        figures: left.join("figures"),
    };
    for pair in args.chunks(2) {
        let [name, value] = pair else {
            return Err(USAGE.to_owned());
        };
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{name} takes a number; {USAGE}"))
        };
        match name.as_str() {
            "--target" => options.only = Some(value.clone()),
            "--runs" => options.plan.runs = number()?,
            "--seed" => options.plan.seed = number()?,
            "--page" => options.page = Some(value.into()),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(options)
}

fn run(args: &[String]) -> Result<(), String> {
    let options = read_options(args)?;
    let plan = &options.plan;
    let chosen: Vec<&'static Target> = TARGETS
        .iter()
        .filter(|target| {
            options
                .only
                .as_deref()
                .is_none_or(|only| only == target.name)
        })
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("no such target; there are {}", names.join(", ")));
    }
    let mut found = 0;
    for target in chosen {
        match target.fuzz(plan) {
            Ok(report) => {
                println!(
                    "{:<18} {:>11} executions in {:>6.1} s, {} outcomes, {} files of corpus",
                    target.name,
                    page::grouped(report.executions),
                    report.took.as_secs_f64(),
                    report.outcomes,
                    report.corpus
                );
                page::Row::of(target.name, plan, &report).keep(&options.figures)?;
            }
            Err(finding) => {
                found += 1;
                println!(
                    "{:<18} FOUND: {}\n  input: {}",
                    target.name,
                    finding.what,
                    finding.file.display()
                );
                page::Row::of_finding(target.name, plan, &finding).keep(&options.figures)?;
            }
        }
    }
    if let Some(page) = &options.page {
        page::write(&options.figures, page)?;
    }
    match found {
        0 => Ok(()),
        n => Err(format!("{n} findings")),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.split_first() {
        Some((verb, rest)) if verb == "run" => run(rest),
        Some((verb, [])) if verb == "seeds" => {
            seeds::write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))
        }
        _ => Err(USAGE.to_owned()),
    };
    clean_up();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
