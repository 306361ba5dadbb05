//! [`CheckReport`]: what a check of a store found, line by line, for people and for scripts that deploy. It uses `client`,
//! `backend` and `types`.

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::list::ListOptions;
use crate::backend::{AcquireOutcome, Backend, TimeAuthority};
use crate::client::Client;
use crate::types::error::{ErrorCode, LockError};
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::ttl::Ttl;

/// How many cycles of acquire and release the latency is taken from.
const CYCLES: u32 = 10;
/// A lock whose lease was granted for longer than the clock of the store says would end too late.
const PROBE_TTL: Duration = Duration::from_secs(10);
/// A cycle that takes longer is worth a look.
const SLOW: Duration = Duration::from_millis(100);

/// How serious a [`CheckFinding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum CheckLevel {
    /// As it should be.
    Ok,
    /// Locks work; something about them is not safe, or slow.
    Warning,
    /// Locks do not work.
    Error,
}

impl CheckLevel {
    /// A short name: `ok`, `warning`, `error`.
    ///
    /// ```
    /// assert_eq!(syncguard::CheckLevel::Warning.as_str(), "warning");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for CheckLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a [`CheckFinding`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum CheckSubject {
    /// Whether the store answers.
    Reachable,
    /// Whether it accepts the user, and the user has every right that locks need.
    Allowed,
    /// Whether tables and functions are there.
    SetUp,
    /// What else a store warns of.
    Settings,
    /// Which clock decides about leases.
    Clock,
    /// How long a cycle of acquire and release takes.
    Latency,
    /// Which version the server has.
    Version,
    /// Whether fences survive a crash of the server.
    Durable,
    /// Whether the store keeps locks until their end, whatever its memory does.
    Evicting,
}

impl CheckSubject {
    /// A short name: `reachable`, `version`, `allowed`, `set-up`, `durable`, `evicting`, `settings`, `clock`, `latency`.
    ///
    /// ```
    /// assert_eq!(syncguard::CheckSubject::SetUp.as_str(), "set-up");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reachable => "reachable",
            Self::Allowed => "allowed",
            Self::SetUp => "set-up",
            Self::Settings => "settings",
            Self::Clock => "clock",
            Self::Latency => "latency",
            Self::Version => "version",
            Self::Durable => "durable",
            Self::Evicting => "evicting",
        }
    }
}

impl fmt::Display for CheckSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One line of a [`CheckReport`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckFinding {
    /// What it is about.
    pub subject: CheckSubject,
    /// How serious it is.
    pub level: CheckLevel,
    /// What was found. No key, id or password.
    pub text: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// What [`Client::check_report`] found.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// for finding in &client.check_report().findings {
///     println!("{}: {}: {}", finding.level, finding.subject, finding.text);
///     if let Some(advice) = &finding.advice {
///         println!("  {advice}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckReport {
    /// The lines, in the order in which they were looked at. What an error keeps from being looked at is missing.
    pub findings: Vec<CheckFinding>,
    code: Option<ErrorCode>,
}

impl CheckReport {
    /// The most serious level of all findings.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// assert!(client.check_report().level() < syncguard::CheckLevel::Error);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn level(&self) -> CheckLevel {
        let levels = self.findings.iter().map(|finding| finding.level);
        levels.max().unwrap_or(CheckLevel::Ok)
    }

    /// The code of the error that a check met, if locks do not work.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// assert_eq!(client.check_report().code(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn code(&self) -> Option<ErrorCode> {
        self.code
    }

    fn add(&mut self, subject: CheckSubject, level: CheckLevel, text: impl Into<String>) {
        self.findings.push(CheckFinding {
            subject,
            level,
            text: text.into(),
            advice: None,
        });
    }

    /// What to do about the last line.
    fn advise(&mut self, advice: &str) {
        if let Some(finding) = self.findings.last_mut() {
            finding.advice = Some(advice.to_owned());
        }
    }

    /// A warning of a store, which often ends with what to do about it.
    fn warn(&mut self, subject: CheckSubject, warning: &str) {
        let (text, advice) = match warning.rsplit_once("; ") {
            Some(parts) => parts,
            None => {
                let advice = match subject {
                    CheckSubject::Durable => {
                        "have the store keep what it has confirmed over a crash, and let the user of the URL see its settings"
                    }
                    CheckSubject::Evicting => {
                        "let the user of the URL see the settings of the store, or look at them with another one"
                    }
                    _ => "read what the documentation of the store says about it",
                };
                (warning, advice)
            }
        };
        self.add(subject, CheckLevel::Warning, text);
        self.advise(advice);
    }

    /// What a store warns of, each under what it is about, and what it does not warn of.
    fn add_warnings<'a>(&mut self, warnings: impl Iterator<Item = &'a str>) {
        let (mut durable, mut keeps, mut others) = (true, true, true);
        for warning in warnings {
            let crash = ["crash", "reboot"].iter().any(|w| warning.contains(w));
            let evicts = warning.contains("evict");
            if crash {
                durable = false;
                self.warn(CheckSubject::Durable, warning);
            }
            if evicts {
                keeps = false;
                self.warn(CheckSubject::Evicting, warning);
            }
            if !crash && !evicts {
                others = false;
                self.warn(CheckSubject::Settings, warning);
            }
        }
        for (is_ok, subject, text) in [
            (
                durable,
                CheckSubject::Durable,
                "nothing is known that loses fences in a crash",
            ),
            (
                keeps,
                CheckSubject::Evicting,
                "nothing is known that removes locks before their end",
            ),
            (others, CheckSubject::Settings, "nothing else is known"),
        ] {
            if is_ok {
                self.add(subject, CheckLevel::Ok, text);
            }
        }
    }

    /// An error is about the first thing that does not work; what comes before that works.
    fn fail(&mut self, error: &LockError) {
        let (subject, advice) = match error.code() {
            ErrorCode::AuthFailed => (
                CheckSubject::Allowed,
                "give the user of the URL the rights that the documentation of the store lists",
            ),
            ErrorCode::InvalidArgument => (
                CheckSubject::SetUp,
                "run the set-up once, with a user that may create tables: setup_schema(), or the command syncguard setup",
            ),
            ErrorCode::Internal => (
                CheckSubject::Settings,
                "look at what is stored: another program may use the same names",
            ),
            _ => (
                CheckSubject::Reachable,
                "look whether the server runs, and whether this machine reaches it",
            ),
        };
        if subject != CheckSubject::Reachable {
            self.add(CheckSubject::Reachable, CheckLevel::Ok, "the store answers");
        }
        self.findings.push(CheckFinding {
            subject,
            level: CheckLevel::Error,
            text: error.message().to_owned(),
            advice: Some(advice.to_owned()),
        });
        self.code = Some(error.code());
    }
}

impl Client {
    /// Looks at the store and tries it, and answers line by line what was found: as [`check`](Self::check), and ten cycles of acquire and
    /// release of a lock that no program uses. An error is a line of the report. The warnings go to the hook too.
    ///
    /// Blocks up to the operation timeout for the check and for each call of a cycle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// for finding in client.check_report().findings {
    ///     println!("{} {}: {}", finding.level, finding.subject, finding.text);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_report(&self) -> CheckReport {
        let mut report = CheckReport {
            findings: Vec::new(),
            code: None,
        };
        let checked = match self.check() {
            Ok(checked) => checked,
            Err(error) => {
                report.fail(&error);
                return report;
            }
        };
        let capabilities = Backend::capabilities(self);
        let name = capabilities.backend;
        report.add(
            CheckSubject::Reachable,
            CheckLevel::Ok,
            format!("the store answers; it is {name}"),
        );
        match self.version(&Call::new()) {
            Ok(Some(version)) => report.add(CheckSubject::Version, CheckLevel::Ok, version),
            Ok(None) => {
                let text = "the store does not say which version it has";
                report.add(CheckSubject::Version, CheckLevel::Ok, text);
            }
            Err(error) => {
                report.fail(&error);
                return report;
            }
        }
        report.add(
            CheckSubject::Allowed,
            CheckLevel::Ok,
            "every right that locks need is there",
        );
        report.add(
            CheckSubject::SetUp,
            CheckLevel::Ok,
            "everything that locks need is there",
        );
        let own = capabilities.warnings();
        let warnings = checked.warnings.iter().filter(|w| !own.contains(w));
        report.add_warnings(warnings.map(String::as_str));
        for warning in own {
            let text = warning.as_str();
            let subject = match text.contains("clocks") {
                true => CheckSubject::Clock,
                false => CheckSubject::Settings,
            };
            report.warn(subject, text);
        }
        if capabilities.time_authority == TimeAuthority::Server {
            let text = "the store's clock decides about leases";
            report.add(CheckSubject::Clock, CheckLevel::Ok, text);
        }
        self.try_listing(&mut report);
        match self.time_cycles() {
            Ok(slowest) => {
                let text = format!(
                    "the slowest of {CYCLES} cycles of acquire and release took {:.1} ms",
                    slowest.as_secs_f64() * 1000.0
                );
                let level = match slowest > SLOW {
                    true => CheckLevel::Warning,
                    false => CheckLevel::Ok,
                };
                report.add(CheckSubject::Latency, level, text);
                if level == CheckLevel::Warning {
                    report.advise(
                        "look at the way to the server and at its load: every lock waits so long",
                    );
                }
            }
            Err(error) => report.fail(&error),
        }
        report
    }

    /// A right that only listings need is missing with a warning: locks work without it.
    fn try_listing(&self, report: &mut CheckReport) {
        let options = ListOptions::new().examine(1);
        if let Err(error) = self.list(&options)
            && error.code() == ErrorCode::AuthFailed
        {
            let text = format!("locks cannot be listed: {}", error.message());
            report.add(CheckSubject::Allowed, CheckLevel::Warning, text);
            report.advise("give the user the right to SCAN, if listings are wanted");
        }
    }

    /// The slowest of some cycles under a name that no program uses.
    fn time_cycles(&self) -> Result<Duration, LockError> {
        let id = LockId::random()?;
        // Always the same name: its fence counter is stored for ever.
        let key = Key::new("syncguard.check")?;
        let ttl = Ttl::new(PROBE_TTL)?;
        let mut slowest = Duration::ZERO;
        for _ in 0..CYCLES {
            let begun = Instant::now();
            if let AcquireOutcome::Acquired(grant) = self.acquire(&key, &id, ttl, &Call::new())? {
                let _ = self.release(&grant.lock_id, &Call::new())?;
            }
            slowest = slowest.max(begun.elapsed());
        }
        Ok(slowest)
    }
}
