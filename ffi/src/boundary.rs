//! Every hazard of the C ABI in one module: panics, NULL, pointer and length, structs that grow, handles, callbacks.
//!
//! The helpers here dereference what C passed and are not `unsafe fn` themselves: they are methods of [`ExportedCall`], which
//! exists only inside an exported (`unsafe extern "C"`) function, whose caller has promised what the header asks for.

mod callbacks;
mod handle;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rust_syncguard::{ErrorCode, LockError};

pub(crate) use callbacks::UserData;
pub(crate) use handle::{Handle, Opaque, free_handle, give};

use crate::error::{ErrorBody, syncguard_error};
use crate::status::syncguard_status;

/// Larger than any option struct will ever be: a `struct_size` over this is garbage, and what lies there is not looked at.
const MAX_STRUCT: usize = 4096;

/// A call of an exported function, with the promise of its caller. Nothing borrowed through it outlives the call.
pub(crate) struct ExportedCall(());

/// The body of every exported function that answers a status. A panic ends here; an error is given to the caller if it asked
/// for it.
pub(crate) fn boundary(
    err: *mut *mut syncguard_error,
    body: impl FnOnce(&ExportedCall) -> Result<syncguard_status, LockError>,
) -> syncguard_status {
    let error = match catch_panic(body) {
        Ok(Ok(status)) => return status,
        Ok(Err(error)) => ErrorBody::new(&error),
        Err(message) => ErrorBody::panicked(message),
    };
    let status = error.status();
    if !err.is_null() {
        // SAFETY: the header asks for a pointer to a writable `syncguard_error *`; it need not be initialised.
        unsafe { err.write(give(error)) };
    }
    status
}

/// The body of every other exported function: `fallback` if it panics.
pub(crate) fn quietly<R>(fallback: R, body: impl FnOnce(&ExportedCall) -> R) -> R {
    catch_panic(body).unwrap_or(fallback)
}

/// Runs the body of an exported function. The error is the message of a panic, if that is a literal: a literal cannot hold a key
/// or a password, a formatted text could.
fn catch_panic<R>(body: impl FnOnce(&ExportedCall) -> R) -> Result<R, Option<&'static str>> {
    catch_unwind(AssertUnwindSafe(|| body(&ExportedCall(())))).map_err(|payload| {
        let message = payload.downcast_ref::<&'static str>().copied();
        // The payload's own drop might panic again.
        std::mem::forget(payload);
        message
    })
}

impl ExportedCall {
    /// A text given by pointer and length; the length `SIZE_MAX` means up to the NUL.
    pub(crate) fn text(
        &self,
        name: &str,
        text: *const c_char,
        len: usize,
    ) -> Result<&str, LockError> {
        if text.is_null() {
            return Err(null(name));
        }
        let bytes = if len == usize::MAX {
            // SAFETY: not NULL; the header asks for a NUL-terminated text with this length.
            unsafe { CStr::from_ptr(text) }.to_bytes()
        } else if isize::try_from(len).is_err() {
            return Err(invalid(format!("the length of {name} is over PTRDIFF_MAX")));
        } else {
            // SAFETY: not NULL, no longer than an object can be; the header asks for `len` readable bytes that do
            // not change during the call.
            unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) }
        };
        utf8(name, bytes)
    }

    /// Bytes given by pointer and length; NULL is none if the length is 0.
    pub(crate) fn data(
        &self,
        name: &str,
        data: *const c_void,
        len: usize,
    ) -> Result<&[u8], LockError> {
        if data.is_null() && len == 0 {
            return Ok(&[]);
        }
        if data.is_null() {
            return Err(null(name));
        }
        if isize::try_from(len).is_err() {
            return Err(invalid(format!("the length of {name} is over PTRDIFF_MAX")));
        }
        // SAFETY: not NULL, no longer than an object can be; the header asks for `len` readable bytes that do not change during the call.
        Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) })
    }

    /// A NUL-terminated text of an option struct; NULL is the default.
    pub(crate) fn option(
        &self,
        name: &str,
        text: *const c_char,
    ) -> Result<Option<&str>, LockError> {
        self.bytes(text).map(|bytes| utf8(name, bytes)).transpose()
    }

    /// A path of an option struct; NULL is the default.
    pub(crate) fn path(&self, text: *const c_char) -> Option<&Path> {
        self.bytes(text).map(|b| Path::new(OsStr::from_bytes(b)))
    }

    fn bytes(&self, text: *const c_char) -> Option<&[u8]> {
        if text.is_null() {
            return None;
        }
        // SAFETY: not NULL; the header asks for a NUL-terminated text.
        Some(unsafe { CStr::from_ptr(text) }.to_bytes())
    }

    /// A handle that must be there. It lives as long as the answer, also if another thread frees it meanwhile.
    pub(crate) fn handle<T: Opaque>(&self, handle: *const T) -> Result<Handle<T>, LockError> {
        self.maybe(handle)?.ok_or_else(|| null(T::NAME))
    }

    /// A handle that may be NULL.
    pub(crate) fn maybe<T: Opaque>(
        &self,
        handle: *const T,
    ) -> Result<Option<Handle<T>>, LockError> {
        handle::borrow(handle)
    }

    /// Takes a handle from its owner, to be dropped. `None` for NULL, and for what a debug build knows to be no handle.
    pub(crate) fn take<T: Opaque>(&self, handle: *mut T) -> Option<Handle<T>> {
        handle::take(handle)
    }

    /// Where a text goes; NULL is nowhere if the size is 0.
    pub(crate) fn text_out(
        &self,
        name: &str,
        to: *mut c_char,
        size: usize,
    ) -> Result<TextOut<'_>, LockError> {
        if to.is_null() && size > 0 {
            return Err(null(name));
        }
        if isize::try_from(size).is_err() {
            return Err(invalid(format!("the size of {name} is over PTRDIFF_MAX")));
        }
        Ok(TextOut {
            to,
            size,
            _call: self,
        })
    }

    /// Where a plain value goes. Nothing is written before [`Out::set`].
    pub(crate) fn out<T>(&self, name: &str, out: *mut T) -> Result<Out<'_, T>, LockError> {
        if out.is_null() {
            return Err(null(name));
        }
        Ok(Out {
            to: out,
            _call: self,
        })
    }

    /// Where a new handle goes. NULL from now on, until [`Out::set`].
    pub(crate) fn handle_out<T: Opaque>(
        &self,
        out: *mut *mut T,
    ) -> Result<Out<'_, *mut T>, LockError> {
        let out = self.out("out", out)?;
        out.set(std::ptr::null_mut());
        Ok(out)
    }

    /// Copies a struct that begins with its size. The copy is all zero if the struct is NULL or cannot be read. The second answer
    /// says whether it is accepted: a struct that can be read but is refused may still hand over user data.
    pub(crate) fn copy<T: SizeFirst>(&self, options: *const T) -> (T, Result<(), LockError>) {
        let mut copy = MaybeUninit::<T>::zeroed();
        let mut readable = Ok(());
        if !options.is_null() {
            // SAFETY: not NULL; the header asks for a `size_t` at the start at the least. Read as bytes, so that a struct
            // in a packed buffer is no undefined behaviour.
            let size = unsafe { options.cast::<usize>().read_unaligned() };
            readable = T::known(size);
            if readable.is_ok() {
                let ours = size.min(size_of::<T>());
                // SAFETY: the caller says that `size` bytes are there, and `ours` is no more than that and than `copy`.
                unsafe {
                    options
                        .cast::<u8>()
                        .copy_to_nonoverlapping(copy.as_mut_ptr().cast::<u8>(), ours);
                };
                // SAFETY: as above; `ours <= size`.
                let beyond = unsafe {
                    std::slice::from_raw_parts(options.cast::<u8>().add(ours), size - ours)
                };
                if beyond.iter().any(|b| *b != 0) {
                    readable = Err(invalid(
                        "the option struct sets a field that this version of the library does not have",
                    ));
                }
            }
        }
        // SAFETY: `SizeFirst` promises that zeroes are a value, and the caller's bytes are of the same C type.
        (unsafe { copy.assume_init() }, readable)
    }

    /// Writes a struct back to where [`copy`](Self::copy) found it, no further than its own size says.
    pub(crate) fn write_back<T: SizeFirst>(&self, options: *mut T, value: &T) {
        if options.is_null() {
            return;
        }
        // SAFETY: as in `copy`.
        let size = unsafe { options.cast::<usize>().read_unaligned() };
        if T::known(size).is_ok() {
            let from = std::ptr::from_ref(value).cast::<u8>();
            // SAFETY: the caller says that `size` bytes are there and writable; `value` is a copy of ours and does not overlap.
            unsafe {
                options
                    .cast::<u8>()
                    .copy_from_nonoverlapping(from, size.min(size_of::<T>()));
            }
        }
    }
}

/// A checked pointer of the caller's, to write an answer to.
pub(crate) struct Out<'a, T> {
    to: *mut T,
    _call: &'a ExportedCall,
}

impl<T> Out<'_, T> {
    pub(crate) fn set(&self, value: T) {
        // SAFETY: not NULL; the header asks for space for a `T`. What was there before is not read or dropped.
        unsafe { self.to.write(value) };
    }
}

/// A checked space of the caller's for a text.
pub(crate) struct TextOut<'a> {
    to: *mut c_char,
    size: usize,
    _call: &'a ExportedCall,
}

impl TextOut<'_> {
    /// Writes the text and a NUL, or nothing if they do not fit.
    pub(crate) fn set(&self, text: &str) {
        if text.len() < self.size {
            // SAFETY: the header asks for `size` bytes to write to; the text and its NUL are no more than that, and are not among them.
            unsafe {
                self.to
                    .cast::<u8>()
                    .copy_from_nonoverlapping(text.as_ptr(), text.len());
                self.to.add(text.len()).write(0);
            }
        }
    }
}

/// A C struct whose first field is its size.
///
/// # Safety
/// `#[repr(C)]`, begins with a `usize`, and all zeroes are a value of it.
pub(crate) unsafe trait SizeFirst: Copy {
    /// The sizes that an older version of the struct may have had: where a field ends and the next begins.
    const ENDS: &'static [usize];

    fn known(size: usize) -> Result<(), LockError> {
        if size == 0 {
            return Err(invalid("struct_size is 0: start from the _INIT macro"));
        }
        if size < size_of::<Self>() && !Self::ENDS.contains(&size) {
            return Err(invalid("struct_size is that of no version of the struct"));
        }
        if size > MAX_STRUCT {
            return Err(invalid("struct_size is too large to be one"));
        }
        Ok(())
    }
}

/// A text for C. A NUL in it is replaced.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// A text in a C array, cut to fit, always ended by a NUL.
pub(crate) fn c_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text.bytes().take(N.saturating_sub(1))) {
        *to = from as c_char;
    }
    array
}

pub(crate) fn invalid(message: impl Into<String>) -> LockError {
    LockError::new(ErrorCode::InvalidArgument, message)
}

fn null(name: &str) -> LockError {
    invalid(format!("{name} is NULL"))
}

fn utf8<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, LockError> {
    // The text is not repeated: it may be a key, or a URL with a password.
    std::str::from_utf8(bytes).map_err(|_| invalid(format!("{name} is not valid UTF-8")))
}
