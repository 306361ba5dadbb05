//! The functions of the C library, as a C program sees them, and what the targets share that call them.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::outcome;

// The library itself.
use syncguard_fuzz_c as _;

pub(super) const OK: i32 = 0;
pub(super) const LOCKED: i32 = 1;
pub(super) const ABSENT: i32 = 2;
pub(super) const INVALID_ARGUMENT: i32 = -3;
pub(super) const PANIC: i32 = -9;
/// A length that means: up to the NUL.
pub(super) const NUL: usize = usize::MAX;

unsafe extern "C" {
    pub(super) fn syncguard_client_open(
        url: *const c_char,
        len: usize,
        options: *const c_void,
        out: *mut *mut c_void,
        err: *mut *mut c_void,
    ) -> i32;
    pub(super) fn syncguard_client_free(client: *mut c_void);
    pub(super) fn syncguard_hash_key(
        key: *const c_char,
        len: usize,
        out: *mut c_char,
        err: *mut *mut c_void,
    ) -> i32;
    pub(super) fn syncguard_validate_lock_id(
        id: *const c_char,
        len: usize,
        err: *mut *mut c_void,
    ) -> i32;
    pub(super) fn syncguard_parse_fence(
        fence: *const c_char,
        len: usize,
        out: *mut u64,
        err: *mut *mut c_void,
    ) -> i32;
    pub(super) fn syncguard_lock_options_resolve(options: *mut c_void);
    pub(super) fn syncguard_retry_delay_ms(
        options: *const c_void,
        attempt: u32,
        remaining_ms: i64,
    ) -> i64;
    pub(super) fn syncguard_try_lock(
        client: *mut c_void,
        key: *const c_char,
        len: usize,
        options: *const c_void,
        out: *mut *mut c_void,
        err: *mut *mut c_void,
    ) -> i32;
    pub(super) fn syncguard_guard_release(
        guard: *mut c_void,
        cancel: *mut c_void,
        err: *mut *mut c_void,
    ) -> i32;
    pub(super) fn syncguard_guard_free(guard: *mut c_void);
    fn syncguard_error_status(err: *const c_void) -> i32;
    fn syncguard_error_message(err: *const c_void) -> *const c_char;
    fn syncguard_error_free(err: *mut c_void);
}

/// Looks at the error of a call, if there must be one, and frees it. The answer stands for what it says.
pub(super) fn settle(status: i32, err: *mut c_void, secrets: &[&str]) -> u64 {
    assert_ne!(status, PANIC, "a panic at the boundary");
    assert_eq!(
        err.is_null(),
        status >= 0,
        "an error object with the status {status}"
    );
    if err.is_null() {
        return outcome(status);
    }
    // SAFETY: the error was given by the call before, and is freed here and nowhere else.
    let (code, message) = unsafe {
        let message = CStr::from_ptr(syncguard_error_message(err))
            .to_str()
            .expect("a text")
            .to_owned();
        let code = syncguard_error_status(err);
        syncguard_error_free(err);
        (code, message)
    };
    assert_eq!(code, status, "{message}");
    assert!(!message.is_empty(), "no message");
    for secret in secrets {
        assert!(!message.contains(secret), "{message}");
    }
    let text: String = message.chars().filter(|c| !c.is_ascii_digit()).collect();
    outcome((status, text))
}

/// The fields of a struct of options, as `ffi/abi/layout.txt` lists them.
pub(super) struct Layout {
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

impl Layout {
    /// Every field but the size is a number, which may be any, or a pointer, which the target sets.
    pub(super) fn of(name: &str, numbers: &[&str], pointers: &[&str]) -> Self {
        let mut lines = include_str!("../../../ffi/abi/layout.txt").lines();
        let size = lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .expect("a struct of the library");
        let field = |line: &'static str| {
            let mut words = line.strip_prefix("  ")?.split(' ');
            Some((words.next()?, words.next()?.parse().ok()?))
        };
        let fields: Vec<_> = lines.map_while(field).collect();
        for (name, at) in &fields {
            let times = [numbers, pointers]
                .concat()
                .iter()
                .filter(|n| *n == name)
                .count();
            assert_eq!(times, usize::from(*at > 0), "a number or a pointer: {name}");
        }
        assert_eq!(fields.len(), 1 + numbers.len() + pointers.len());
        Self { size, fields }
    }

    pub(super) fn at(&self, field: &str) -> usize {
        let found = self.fields.iter().find(|(name, _)| *name == field);
        found.expect("a field of the struct").1
    }

    /// Whether a version of the library had, or will have, a struct of this size.
    fn knows(&self, size: usize) -> bool {
        let ends = || self.fields.iter().skip(1).any(|(_, at)| *at == size);
        (1..=4096).contains(&size) && (size >= self.size || ends())
    }

    /// A size chosen by two bytes: of every version, between them, and far off.
    fn size(&self, [kind, n]: [u8; 2]) -> usize {
        match kind % 8 {
            0 | 1 => self.size,
            2 => self.fields[1 + usize::from(n) % (self.fields.len() - 1)].1,
            3 => usize::from(n),
            4 => self.size + usize::from(n),
            5 => 4096 - usize::from(n % 3),
            6 => 4097 + usize::from(n),
            _ => usize::MAX >> (n % 64),
        }
    }
}

/// A struct of options in a block of exactly its size, which need not be aligned.
pub(super) struct RawOptions {
    pub(super) bytes: Box<[u8]>,
    pub(super) size: usize,
    layout: &'static Layout,
}

impl RawOptions {
    /// A struct whose size two bytes choose, filled with `bytes`. One that says more than the library believes has only its size.
    pub(super) fn new(choice: [u8; 2], bytes: &[u8], layout: &'static Layout) -> Self {
        let size = layout.size(choice);
        let there = if size <= 4096 { size.max(8) } else { 8 };
        let mut block = vec![0; there].into_boxed_slice();
        for (to, from) in block.iter_mut().zip(bytes) {
            *to = *from;
        }
        block[..8].copy_from_slice(&size.to_ne_bytes());
        Self {
            bytes: block,
            size,
            layout,
        }
    }

    /// Whether a version of the library had, or will have, a struct of this size.
    pub(super) fn is_known(&self) -> bool {
        self.layout.knows(self.size)
    }

    /// Writes a pointer or a function to a field, if the struct has it.
    pub(super) fn put(&mut self, field: &str, pointer: *const c_void) {
        let at = self.layout.at(field);
        if let Some(field) = self.bytes.get_mut(at..at + 8) {
            field.copy_from_slice(&(pointer as usize).to_ne_bytes());
        }
    }

    /// Whether the library reads the field.
    pub(super) fn has(&self, field: &str) -> bool {
        self.is_known() && self.layout.at(field) + 8 <= self.size
    }

    pub(super) fn pointer(&self) -> *const c_void {
        self.bytes.as_ptr().cast()
    }
}

/// Data of a caller whose end is counted.
#[derive(Default)]
pub(super) struct CountedData {
    ends: AtomicU32,
}

impl CountedData {
    pub(super) fn pointer(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }

    /// The finalizer.
    pub(super) extern "C" fn end(data: *mut c_void) {
        // SAFETY: the target that made the data waits for this call, or has it outlive the library's use.
        let data = unsafe { &*data.cast::<Self>() };
        data.ends.fetch_add(1, SeqCst);
    }

    /// Waits until the data has ended, which it must once.
    pub(super) fn expect(&self, wanted: u32) {
        let begun = Instant::now();
        while self.ends.load(SeqCst) < wanted {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "the user data was never freed"
            );
            std::thread::yield_now();
        }
        assert_eq!(
            self.ends.load(SeqCst),
            wanted,
            "the user data was freed twice, or too early"
        );
    }
}
