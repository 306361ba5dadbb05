//! `syncguard_report`: what a check found, line by line. Uses `boundary` and `client`.

use std::ffi::{CString, c_char};
use std::ptr::null;

use rust_syncguard::{CheckFinding, CheckLevel, CheckSubject};

use crate::boundary::{Opaque, boundary, c_string, free_handle, give, invalid, quietly};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::status::{OK, syncguard_status};

/// A level of a finding: as it should be.
pub const SYNCGUARD_CHECK_OK: i32 = 0;
/// A level of a finding: locks work; something about them is not safe, or slow.
pub const SYNCGUARD_CHECK_WARNING: i32 = 1;
/// A level of a finding: locks do not work.
pub const SYNCGUARD_CHECK_ERROR: i32 = 2;

/// The subject of a finding: whether the store answers.
pub const SYNCGUARD_CHECK_REACHABLE: i32 = 1;
/// The subject of a finding: whether the store accepts the user, and the user has every right that locks need.
pub const SYNCGUARD_CHECK_ALLOWED: i32 = 2;
/// The subject of a finding: whether tables and functions are there.
pub const SYNCGUARD_CHECK_SET_UP: i32 = 3;
/// The subject of a finding: whether the store's settings keep locks and fences.
pub const SYNCGUARD_CHECK_SETTINGS: i32 = 4;
/// The subject of a finding: which clock decides about leases.
pub const SYNCGUARD_CHECK_CLOCK: i32 = 5;
/// The subject of a finding: how long a cycle of acquire and release takes.
pub const SYNCGUARD_CHECK_LATENCY: i32 = 6;
/// The subject of a finding: which version the server has.
pub const SYNCGUARD_CHECK_VERSION: i32 = 7;
/// The subject of a finding: whether fences survive a crash of the server.
pub const SYNCGUARD_CHECK_DURABLE: i32 = 8;
/// The subject of a finding: whether the store keeps locks until their end, whatever its memory does.
pub const SYNCGUARD_CHECK_EVICTING: i32 = 9;

/// One line of a `syncguard_report`. Frozen: later versions do not change it. The texts belong to the report and live as long as it.
#[repr(C)]
pub struct syncguard_finding {
    /// What it is about: one of the SYNCGUARD_CHECK_ numbers from REACHABLE to EVICTING; 0 for one that this version does not name.
    pub subject: i32,
    /// How serious it is: SYNCGUARD_CHECK_OK, _WARNING or _ERROR; -1 for one that this version does not name.
    pub level: i32,
    /// What was found. No key, id or password.
    pub text: *const c_char,
    /// What to do about it; NULL where there is nothing to do.
    pub advice: *const c_char,
}

/// What a check of a store found. It never changes.
/// Threads: any, also several at once.
pub struct syncguard_report {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_report {
    type Body = ReportBody;
    const NAME: &'static str = "report";
    const TAG: u64 = 0x5347_7265_706f_7201;
}

/// The body of a `syncguard_report`.
pub(crate) struct ReportBody {
    findings: Vec<FindingBody>,
    level: i32,
    status: syncguard_status,
}

struct FindingBody {
    subject: i32,
    level: i32,
    text: CString,
    advice: Option<CString>,
}

fn level(level: CheckLevel) -> i32 {
    match level {
        CheckLevel::Ok => SYNCGUARD_CHECK_OK,
        CheckLevel::Warning => SYNCGUARD_CHECK_WARNING,
        CheckLevel::Error => SYNCGUARD_CHECK_ERROR,
        _ => -1,
    }
}

impl From<&CheckFinding> for FindingBody {
    fn from(finding: &CheckFinding) -> Self {
        Self {
            subject: match finding.subject {
                CheckSubject::Reachable => SYNCGUARD_CHECK_REACHABLE,
                CheckSubject::Allowed => SYNCGUARD_CHECK_ALLOWED,
                CheckSubject::SetUp => SYNCGUARD_CHECK_SET_UP,
                CheckSubject::Settings => SYNCGUARD_CHECK_SETTINGS,
                CheckSubject::Clock => SYNCGUARD_CHECK_CLOCK,
                CheckSubject::Latency => SYNCGUARD_CHECK_LATENCY,
                CheckSubject::Version => SYNCGUARD_CHECK_VERSION,
                CheckSubject::Durable => SYNCGUARD_CHECK_DURABLE,
                CheckSubject::Evicting => SYNCGUARD_CHECK_EVICTING,
                _ => 0,
            },
            level: level(finding.level),
            text: c_string(&finding.text),
            advice: finding.advice.as_deref().map(c_string),
        }
    }
}

/// Checks the store as `syncguard_client_check` does, tries ten cycles on a key of its own, and answers what it found line by line, for
/// people and for scripts that deploy. Trouble of the store is a finding here and not a status. Warnings go to `on_warning` too.
///
/// @param out  gets the report, which belongs to the caller and is freed with `syncguard_report_free`; NULL unless OK.
/// @param err  NULL, or gets an error below zero.
/// @return OK: the check was made, whatever it found; INVALID_ARGUMENT for NULL.
/// Threads: any. Each of its calls of the store blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_report(
    client: *mut syncguard_client,
    out: *mut *mut syncguard_report,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out)?;
        let body = call.handle(client)?;
        let report = body.client.check_report();
        out.set(give(ReportBody {
            findings: report.findings.iter().map(Into::into).collect(),
            level: level(report.level()),
            status: report.code().map_or(OK, Into::into),
        }));
        Ok(OK)
    })
}

/// The most serious level of all findings: SYNCGUARD_CHECK_OK, _WARNING or _ERROR. ERROR for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_report_level(report: *const syncguard_report) -> i32 {
    quietly(SYNCGUARD_CHECK_ERROR, |call| {
        call.handle(report)
            .map_or(SYNCGUARD_CHECK_ERROR, |report| report.level)
    })
}

/// The status that `syncguard_client_check` would answer: OK if locks work. INVALID_ARGUMENT for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_report_status(
    report: *const syncguard_report,
) -> syncguard_status {
    let none = crate::status::INVALID_ARGUMENT;
    quietly(none, |call| {
        call.handle(report).map_or(none, |report| report.status)
    })
}

/// How many findings the report has. 0 for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_report_count(report: *const syncguard_report) -> usize {
    quietly(0, |call| {
        call.handle(report)
            .map_or(0, |report| report.findings.len())
    })
}

/// A finding of the report, in the order in which they were looked at. What an error keeps from being looked at is missing.
///
/// @param index  which one: less than `syncguard_report_count`.
/// @param out    gets the finding; written if OK.
/// @param err    NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL and for an index that the report does not have.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_report_finding(
    report: *const syncguard_report,
    index: usize,
    out: *mut syncguard_finding,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (report, out) = (call.handle(report)?, call.out("out", out)?);
        let found = report.findings.get(index);
        let found = found.ok_or_else(|| invalid("index is not that of a finding of the report"))?;
        out.set(syncguard_finding {
            subject: found.subject,
            level: found.level,
            text: found.text.as_ptr(),
            advice: found.advice.as_ref().map_or(null(), |text| text.as_ptr()),
        });
        Ok(OK)
    })
}

/// Frees a report. NULL is fine.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_report_free(report: *mut syncguard_report) {
    free_handle(report);
}
