//! From the arguments to a client.

use std::io::Write;

use syncguard::{Client, ClientOptions};

use crate::args::StoreArgs;
use crate::exit::{Failure, USAGE};

/// The variable that names the store. A command that `run` starts does not get it.
pub const URL_VARIABLE: &str = "SYNCGUARD_URL";

pub fn options(args: &StoreArgs) -> ClientOptions {
    let mut options = ClientOptions::new().on_warning(|text| {
        let _ = writeln!(std::io::stderr(), "syncguard: {text}");
    });
    if let Some(prefix) = &args.key_prefix {
        options = options.key_prefix(prefix);
    }
    if let Some(schema) = &args.schema {
        options = options.schema(schema);
    }
    if let Some(table) = &args.table {
        options = options.table_name(table);
    }
    if let Some(table) = &args.fence_table {
        options = options.fence_table_name(table);
    }
    if let Some(fences) = args.fences {
        options = options.fences(fences);
    }
    if let Some(file) = &args.tls_ca_file {
        options = options.tls_ca_file(file);
    }
    options
}

pub fn open(args: &StoreArgs) -> Result<Client, Failure> {
    open_with(args, &options(args))
}

pub fn open_with(args: &StoreArgs, options: &ClientOptions) -> Result<Client, Failure> {
    let url = url(args)?;
    if args.url.is_some() && has_password(&url) {
        let _ = writeln!(
            std::io::stderr(),
            "syncguard: warning: other users of this machine can see the password in --url; \
             put the URL into a file and use --url-file, or into the variable {URL_VARIABLE}"
        );
    }
    Ok(Client::open_with(&url, options)?)
}

fn url(args: &StoreArgs) -> Result<String, Failure> {
    if let Some(url) = &args.url {
        return Ok(url.clone());
    }
    if let Some(file) = &args.url_file {
        let text = std::fs::read_to_string(file)
            .map_err(|e| Failure::new(USAGE, format!("cannot read the --url-file: {e}")))?;
        let line = text.lines().next().unwrap_or_default().trim();
        return match line {
            "" => Err(Failure::new(
                USAGE,
                "the --url-file has no URL in its first line",
            )),
            line => Ok(line.to_owned()),
        };
    }
    match std::env::var(URL_VARIABLE) {
        Ok(url) if !url.is_empty() => Ok(url),
        _ => Err(Failure::new(
            USAGE,
            format!("no store: give --url, --url-file or the variable {URL_VARIABLE}"),
        )),
    }
}

/// Whether a URL seems to have a password in it: the warning need not be exact.
fn has_password(url: &str) -> bool {
    let user = url.split_once("://").and_then(|(_, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        rest[..end].rsplit_once('@').map(|(user, _)| user)
    });
    user.is_some_and(|user| user.contains(':'))
        || ["pass=", "password="].iter().any(|word| url.contains(word))
}
