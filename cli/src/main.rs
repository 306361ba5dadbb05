//! The command `syncguard`: runs commands under a lock, shows locks, mends what is stuck. It uses the public interface of the library alone.

#![deny(unsafe_code)]

mod args;
mod child;
mod exit;
mod locks;
mod run;
mod signals;
mod store;
mod supervisor;
mod tending;
mod terminal;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use exit::{Failure, USAGE};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            if !is_help && error.to_string().contains("://") {
                // What was not understood is repeated otherwise, and a URL can have a password.
                let _ = writeln!(
                    std::io::stderr(),
                    "syncguard: an argument was not understood near a URL: a URL belongs behind --url, or into --url-file; see --help"
                );
            } else {
                let _ = error.print();
            }
            return ExitCode::from(if is_help { 0 } else { USAGE });
        }
    };
    match serve(cli) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { text, code }) => {
            if let Some(text) = text {
                let _ = writeln!(std::io::stderr(), "syncguard: {text}");
            }
            ExitCode::from(code)
        }
    }
}

fn serve(cli: Cli) -> Result<u8, Failure> {
    let (store, json) = (&cli.store, cli.store.json);
    match &cli.command {
        Command::Run(args) => run::run(store, args),
        Command::Ls(args) => locks::ls(&store::open(store)?, args, json),
        Command::Show(args) => locks::show(&store::open(store)?, args, json),
        Command::Watch(args) => locks::watch(&store::open(store)?, args, json),
        Command::Release(args) => locks::release(&store::open(store)?, args, json),
        Command::Fence(args) => locks::fence(&store::open(store)?, args, json),
        Command::Check(args) => tending::check(store, args),
        Command::Setup(args) => tending::setup(store, args),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "syncguard", &mut text);
            std::io::stdout().write_all(&text)?;
            Ok(0)
        }
        Command::Man { directory } => {
            clap_mangen::generate_to(Cli::command(), directory)?;
            Ok(0)
        }
        Command::Exec(args) => child::become_command(args),
        Command::Supervise => supervisor::supervise(),
    }
}
