//! As much of DER as it takes to find two things in a certificate. It uses nothing of the crate.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const CONTEXT_0: u8 = 0xa0;

/// The `SubjectPublicKeyInfo` of a certificate of any version.
pub(super) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let inside = element(certificate, SEQUENCE)?.contents;
    let signed = element(inside, SEQUENCE)?.contents;
    // Version 1 is the one that is not named.
    let mut rest = element(signed, CONTEXT_0).map_or(signed, |version| version.rest);
    // Serial number, signature algorithm, issuer, validity, subject.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = element(rest, tag)?.rest;
    }
    let after = element(rest, SEQUENCE)?.rest;
    rest.get(..rest.len() - after.len())
}

/// One element of DER.
pub(super) struct DerElement<'a> {
    pub(super) contents: &'a [u8],
    /// What follows the element.
    pub(super) rest: &'a [u8],
}

/// The element that `bytes` begins with, if it has `tag`.
pub(super) fn element(bytes: &[u8], tag: u8) -> Option<DerElement<'_>> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |n, &d| n << 8 | usize::from(d));
        rest = after;
    }
    let (contents, rest) = rest.split_at_checked(length)?;
    Some(DerElement { contents, rest })
}
