//! `tls-server-end-point` of RFC 5929: the hash of the server's certificate. It uses `der` alone.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::der::{CONTEXT_0, DerElement, OBJECT_ID, SEQUENCE, element};

/// 1.2.840.113549.1.1: RSA signatures, by their last arc.
const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// 1.2.840.10045.4.3: ECDSA with a hash of SHA-2.
const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
/// 1.2.840.10045.4.1
const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
/// 2.16.840.1.101.3.4.2: the hashes themselves.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
const RSASSA_PSS: u8 = 10;

/// The hash of `certificate` by the algorithm that its signature uses, SHA-256 in place of MD5 and SHA-1; `None` for a
/// signature without a hash of its own, such as Ed25519's, for which the RFC defines nothing.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let inside = element(certificate, SEQUENCE)?.contents;
    let rest = element(inside, SEQUENCE)?.rest;
    let algorithm = element(rest, SEQUENCE)?.contents;
    let DerElement {
        contents: id,
        rest: parameters,
    } = element(algorithm, OBJECT_ID)?;
    let bits = match id.split_last()? {
        (&RSASSA_PSS, PKCS1) => pss_hash(parameters)?,
        (4 | 5, PKCS1) => 256,
        (11, PKCS1) | (2, ECDSA_SHA2) => 256,
        (12, PKCS1) | (3, ECDSA_SHA2) => 384,
        (13, PKCS1) | (4, ECDSA_SHA2) => 512,
        (14, PKCS1) | (1, ECDSA_SHA2) => 224,
        _ if id == ECDSA_SHA1 => 256,
        _ => return None,
    };
    Some(match bits {
        224 => Sha224::digest(certificate).to_vec(),
        256 => Sha256::digest(certificate).to_vec(),
        384 => Sha384::digest(certificate).to_vec(),
        _ => Sha512::digest(certificate).to_vec(),
    })
}

/// The hash named in the parameters of RSASSA-PSS. Left out, it is SHA-1.
fn pss_hash(parameters: &[u8]) -> Option<u32> {
    let inside = element(parameters, SEQUENCE)?.contents;
    let Some(DerElement { contents: hash, .. }) = element(inside, CONTEXT_0) else {
        return Some(256);
    };
    let algorithm = element(hash, SEQUENCE)?.contents;
    let id = element(algorithm, OBJECT_ID)?.contents;
    match id.split_last()? {
        (1, SHA2) => Some(256),
        (2, SHA2) => Some(384),
        (3, SHA2) => Some(512),
        (4, SHA2) => Some(224),
        _ => None,
    }
}
