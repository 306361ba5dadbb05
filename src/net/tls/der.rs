//! As much of DER as it takes to find two things in a certificate.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const CONTEXT_0: u8 = 0xa0;

/// The `SubjectPublicKeyInfo` of a certificate of any version.
pub(super) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (inside, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(inside, SEQUENCE)?;
    // Version 1 is the one that is not named.
    let mut rest = element(signed, CONTEXT_0).map_or(signed, |(_, rest)| rest);
    // Serial number, signature algorithm, issuer, validity, subject.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = element(rest, tag)?.1;
    }
    let (_, after) = element(rest, SEQUENCE)?;
    rest.get(..rest.len() - after.len())
}

/// The element of DER that `bytes` begins with, if it has `tag`: what is in it and what follows it.
pub(super) fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
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
    let (inside, after) = rest.split_at_checked(length)?;
    Some((inside, after))
}
