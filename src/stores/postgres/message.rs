//! Messages over a socket: encoding requests, reading replies within bounds, and the few binary values that the verbs use. It uses
//! `net::socket`.

use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{DataRowBody, Header, Message};
use postgres_protocol::message::frontend;

use super::error::{garbled, too_long};
use crate::backend::limits::Limits;
use crate::net::socket::Socket;
use crate::types::error::LockError;

/// The longest answer, all its messages together. The largest that is expected is that of `check()`, a few kilobytes; more is
/// garbage or an attack on our memory.
pub(crate) const MAX_ANSWER: usize = 1 << 20;
/// The most columns of a row and fields of a record. A NULL takes four bytes on the wire and six times that in memory.
const MAX_FIELDS: usize = 16;
const CHUNK: usize = 4096;

const TEXT: u32 = 25;
const INT8: u32 = 20;

/// A value sent with a statement.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Param<'a> {
    /// A `text`.
    Text(&'a str),
    /// An `int8`.
    Int8(i64),
}

/// `Debug` shows no text: it may be a key or a lock id.
impl fmt::Debug for Param<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Int8(n) => write!(f, "Int8({n})"),
        }
    }
}

/// Appends a statement to run once, without a name: a pooler may give the next one to another session.
pub(crate) fn statement(
    out: &mut BytesMut,
    sql: &str,
    params: &[Param<'_>],
) -> Result<(), LockError> {
    prepare(out, "", sql, params)?;
    execute(out, "", params)
}

/// Appends the preparation of a statement that has parameters like these.
pub(crate) fn prepare(
    out: &mut BytesMut,
    name: &str,
    sql: &str,
    params: &[Param<'_>],
) -> Result<(), LockError> {
    let types = params.iter().map(|p| match p {
        Param::Text(_) => TEXT,
        Param::Int8(_) => INT8,
    });
    frontend::parse(name, sql, types, out).map_err(unsendable)
}

/// Appends the execution of a prepared statement.
pub(crate) fn execute(
    out: &mut BytesMut,
    name: &str,
    params: &[Param<'_>],
) -> Result<(), LockError> {
    frontend::bind(
        "",
        name,
        [1],
        params,
        |param, buf| {
            match param {
                Param::Text(text) => buf.extend_from_slice(text.as_bytes()),
                Param::Int8(n) => buf.extend_from_slice(&n.to_be_bytes()),
            }
            Ok(IsNull::No)
        },
        [1],
        out,
    )
    .map_err(|_| unsendable("a parameter"))?;
    frontend::execute("", 0, out).map_err(unsendable)
}

/// Only a NUL in a text or a length over 2 GiB gets here, and both are refused where they enter the library.
pub(crate) fn unsendable(_: impl Sized) -> LockError {
    LockError::internal("a statement that cannot be encoded").nothing_applied()
}

/// A socket and what was read from it beyond the last message.
pub(crate) struct Channel {
    pub(crate) socket: Socket,
    input: BytesMut,
    /// How many bytes the answer that is being read may still have.
    allowance: usize,
    /// Where the socket's bytes arrive. Kept: clearing it costs more than all the rest of a message.
    chunk: Box<[u8; CHUNK]>,
}

impl Channel {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            input: BytesMut::with_capacity(CHUNK),
            allowance: MAX_ANSWER,
            chunk: Box::new([0; CHUNK]),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], limits: &Limits<'_>) -> Result<(), LockError> {
        self.socket.write_all(bytes, limits)
    }

    /// From here on a new answer is read, of at most [`MAX_ANSWER`] bytes.
    pub(crate) fn expect_answer(&mut self) {
        self.allowance = MAX_ANSWER;
    }

    /// The next message of the answer.
    pub(crate) fn receive(&mut self, limits: &Limits<'_>) -> Result<Message, LockError> {
        loop {
            if let Some(header) = Header::parse(&self.input).map_err(|_| garbled())? {
                // The length does not count the byte before it.
                let whole = usize::try_from(header.len()).map_err(|_| garbled())? + 1;
                let left = self.allowance.checked_sub(whole).ok_or_else(too_long)?;
                if let Some(message) = Message::parse(&mut self.input).map_err(|_| garbled())? {
                    self.allowance = left;
                    return Ok(message);
                }
            }
            let n = self.socket.read(&mut self.chunk[..], limits)?;
            self.input.extend_from_slice(&self.chunk[..n]);
        }
    }

    /// Whether nothing was received beyond the last message, not even a part of one.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether the connection may be used again: nothing came without a request.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.is_empty() && self.socket.is_quiet()
    }
}

/// A row of a statement of this store.
pub struct Row {
    /// The values, wherever each of them lies.
    bytes: Bytes,
    fields: Vec<Option<Range<usize>>>,
    form: ValueForm,
}

/// How values are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueForm {
    /// As this library asks for them.
    Binary,
    /// As the simple protocol gives them.
    Text,
}

/// `Debug` shows no value: it may be a key or a lock id.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("fields", &self.fields.len())
            .finish_non_exhaustive()
    }
}

impl Row {
    /// A row as a driver has read it in the text format, one value per column.
    ///
    /// ```
    /// use syncguard::format::postgres::{Row, read_is_locked};
    ///
    /// let row = Row::from_texts(["1790000030000", "1790000000000"].map(Some));
    /// assert!(read_is_locked(&[row])?);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn from_texts<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut bytes = BytesMut::new();
        let mut fields = Vec::new();
        for value in values {
            fields.push(value.map(|text| {
                let start = bytes.len();
                bytes.extend_from_slice(text.as_bytes());
                start..bytes.len()
            }));
        }
        Self {
            bytes: bytes.freeze(),
            fields,
            form: ValueForm::Text,
        }
    }

    pub(crate) fn read(body: &DataRowBody) -> Result<Self, LockError> {
        let mut ranges = body.ranges();
        let mut fields = Vec::new();
        while let Some(range) = ranges.next().map_err(|_| garbled())? {
            if fields.len() == MAX_FIELDS {
                return Err(too_long());
            }
            fields.push(range);
        }
        Ok(Self {
            fields,
            bytes: body.buffer_bytes().clone(),
            form: ValueForm::Binary,
        })
    }

    /// The fields of the composite value that is the row's only column.
    pub(crate) fn record(&self) -> Result<Self, LockError> {
        let whole = self.fields.first().cloned().flatten();
        let mut rest = whole.ok_or_else(garbled)?;
        if self.form == ValueForm::Text {
            return self.text_record(rest);
        }
        let count = usize::try_from(self.take4(&mut rest)?).map_err(|_| garbled())?;
        if count > MAX_FIELDS {
            return Err(too_long());
        }
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let _type = self.take4(&mut rest)?;
            let Ok(len) = usize::try_from(self.take4(&mut rest)?) else {
                fields.push(None);
                continue;
            };
            if len > rest.len() {
                return Err(garbled());
            }
            fields.push(Some(rest.start..rest.start + len));
            rest.start += len;
        }
        Ok(Self {
            bytes: self.bytes.clone(),
            fields,
            form: ValueForm::Binary,
        })
    }

    /// The fields of a composite value in the text format: `(t,"a ""b""",,1)`.
    fn text_record(&self, whole: Range<usize>) -> Result<Self, LockError> {
        let text = self.bytes.get(whole).ok_or_else(garbled)?;
        let inside = text.strip_prefix(b"(").and_then(|t| t.strip_suffix(b")"));
        let mut rest = inside.ok_or_else(garbled)?.iter().copied().peekable();
        let (mut bytes, mut fields) = (BytesMut::new(), Vec::new());
        loop {
            let start = bytes.len();
            let (mut quoted, mut in_quotes) = (false, false);
            loop {
                match rest.peek().copied() {
                    Some(b',') | None if !in_quotes => break,
                    None => return Err(garbled()),
                    _ => {}
                }
                match rest.next() {
                    Some(b'\\') => bytes.extend(rest.next()),
                    // Two quotes inside quotes are one.
                    Some(b'"') if in_quotes && rest.peek() == Some(&b'"') => {
                        bytes.extend(rest.next())
                    }
                    Some(b'"') => (quoted, in_quotes) = (true, !in_quotes),
                    byte => bytes.extend(byte),
                }
            }
            if fields.len() == MAX_FIELDS {
                return Err(too_long());
            }
            fields.push((quoted || bytes.len() > start).then_some(start..bytes.len()));
            if rest.next().is_none() {
                break;
            }
        }
        Ok(Self {
            bytes: bytes.freeze(),
            fields,
            form: ValueForm::Text,
        })
    }

    fn take4(&self, rest: &mut Range<usize>) -> Result<i32, LockError> {
        let number = self.bytes.get(rest.clone()).and_then(<[u8]>::first_chunk);
        rest.start += 4;
        number.copied().map(i32::from_be_bytes).ok_or_else(garbled)
    }

    fn get(&self, i: usize) -> Result<Option<&[u8]>, LockError> {
        match self.fields.get(i).ok_or_else(garbled)? {
            Some(range) => self.bytes.get(range.clone()).map(Some).ok_or_else(garbled),
            None => Ok(None),
        }
    }

    pub(crate) fn text(&self, i: usize) -> Result<Option<&str>, LockError> {
        self.get(i)?
            .map(|b| std::str::from_utf8(b).map_err(|_| garbled()))
            .transpose()
    }

    pub(crate) fn int8(&self, i: usize) -> Result<Option<i64>, LockError> {
        if self.form == ValueForm::Text {
            let number = |text: &str| text.parse().map_err(|_| garbled());
            return self.text(i)?.map(number).transpose();
        }
        self.get(i)?
            .map(|b| b.try_into().map(i64::from_be_bytes).map_err(|_| garbled()))
            .transpose()
    }

    pub(crate) fn bool(&self, i: usize) -> Result<bool, LockError> {
        match self.get(i)? {
            Some([0]) if self.form == ValueForm::Binary => Ok(false),
            Some([1]) if self.form == ValueForm::Binary => Ok(true),
            Some(b"f") if self.form == ValueForm::Text => Ok(false),
            Some(b"t") if self.form == ValueForm::Text => Ok(true),
            _ => Err(garbled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: &[u8]) -> Row {
        // As in a message, other bytes are around them.
        let around = [b"\xff\xff", bytes, b"\x00\x00\x00\x00\x00\x00\x00\x00"].concat();
        Row {
            bytes: around.into(),
            fields: vec![Some(2..2 + bytes.len())],
            form: ValueForm::Binary,
        }
    }

    #[test]
    fn records_in_text_are_read_as_the_server_writes_them() {
        let text = |text: &str| Row::from_texts([Some(text)]).record();
        let record = text(r#"(t,"a ""b"" \\ \"c,(",,"",-7,f)"#).expect("a record");
        assert!(record.bool(0).expect("a bool") && !record.bool(5).expect("a bool"));
        assert_eq!(record.text(1).expect("a text"), Some(r#"a "b" \ "c,("#));
        assert_eq!(record.text(2).expect("a null"), None);
        assert_eq!(record.text(3).expect("a text"), Some(""));
        assert_eq!(record.int8(4).expect("a number"), Some(-7));
        assert!(record.int8(0).is_err() && record.bool(4).is_err());
        for bad in ["", "(", "t,f", r#"("a)"#, "(1"] {
            assert!(text(bad).is_err(), "{bad}");
        }
        assert!(text(&format!("({})", ",".repeat(MAX_FIELDS))).is_err());
    }

    #[test]
    fn records_are_read_and_cut_ones_refused() {
        let mut bytes = vec![0, 0, 0, 3];
        bytes.extend([0, 0, 0, 16, 0, 0, 0, 1, 1]);
        bytes.extend([0, 0, 0, 25, 0, 0, 0, 2, b'o', b'k']);
        bytes.extend([0, 0, 0, 20, 255, 255, 255, 255]);
        let record = row(&bytes).record().expect("a record");
        assert!(record.bool(0).expect("a bool"));
        assert_eq!(record.text(1).expect("a text"), Some("ok"));
        assert_eq!(record.int8(2).expect("a null"), None);
        assert!(record.int8(3).is_err() && record.int8(1).is_err());
        for cut in 0..bytes.len() {
            assert!(row(&bytes[..cut]).record().is_err(), "{cut}");
        }
    }
}
