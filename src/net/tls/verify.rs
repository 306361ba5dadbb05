//! Certificates that are asked for less than a trusted issuer and the host's name, and why one is refused. It uses `der` and
//! `types`.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use super::der::public_key;
use crate::types::error::{ErrorCode, LockError};

/// Accepts any name; with roots it asks for an issuer among them, without it asks for nothing.
///
/// The peer always has to prove that it has the certificate's key: channel binding rests on that.
#[derive(Debug)]
pub(super) struct Lenient {
    pub(super) roots: Option<Arc<RootCertStore>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(certificate)?,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls13_signature(message, certificate, signed, &self.algorithms);
        // A certificate that cannot be read, as those of version 1, still has a key to prove.
        if let (None, Err(Error::InvalidCertificate(_))) = (&self.roots, &verified)
            && let Some(key) = public_key(certificate)
        {
            let key = SubjectPublicKeyInfoDer::from(key);
            return verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms);
        }
        verified
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A failure of TLS as one of ours.
///
/// A certificate that is refused is `AuthFailed`, ours or the server's: a person has to change something, and trying again
/// does not help. Everything else is `ServiceUnavailable`.
pub(super) fn explain(e: &Error, phase: &str) -> LockError {
    let (code, why) = match e {
        Error::InvalidCertificate(refused) => {
            return LockError::new(
                ErrorCode::AuthFailed,
                format!(
                    "the server's TLS certificate was refused: {}",
                    refusal(refused)
                ),
            );
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => (
            ErrorCode::AuthFailed,
            "the server asks for a client certificate".to_owned(),
        ),
        Error::AlertReceived(AlertDescription::BadCertificate | AlertDescription::AccessDenied) => {
            (
                ErrorCode::AuthFailed,
                "the server asks for a client certificate, or refused the client's".to_owned(),
            )
        }
        Error::AlertReceived(alert) => match refusal_of_ours(*alert) {
            Some(why) => (
                ErrorCode::AuthFailed,
                format!("the server refused the client certificate: {why}"),
            ),
            None => (
                ErrorCode::ServiceUnavailable,
                format!("the server refused it ({alert:?})"),
            ),
        },
        Error::InvalidMessage(_) => (
            ErrorCode::ServiceUnavailable,
            "the server does not speak TLS on this port".to_owned(),
        ),
        other => (ErrorCode::ServiceUnavailable, other.to_string()),
    };
    LockError::new(code, format!("the TLS {phase}: {why}"))
}

/// What these alerts say is about the only certificate that the peer has seen: the client's.
fn refusal_of_ours(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => "it has expired, or is not valid yet",
        AlertDescription::CertificateRevoked => "it was revoked",
        AlertDescription::UnknownCA => "the server does not know its issuer",
        AlertDescription::UnsupportedCertificate => "it is of a kind that the server does not take",
        AlertDescription::CertificateUnknown => "the server does not say why",
        AlertDescription::DecryptError => "the key may not be its own",
        _ => return None,
    })
}

fn refusal(e: &CertificateError) -> String {
    match e {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; is the clock right?".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "its issuer is unknown; name its CA file if it is yours".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is for another host ({e})")
        }
        CertificateError::BadSignature => {
            "a signature is wrong; the CA file is of another authority with the same name, or the server lacks the certificate's key".to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        other => {
            // rustls has no names of its own for these two, and both are common.
            let text = format!("{other:?}");
            if text.contains("CaUsedAsEndEntity") {
                "it is a certificate authority's own (as `openssl req -x509` makes them); use one that such an authority signed".to_owned()
            } else if text.contains("UnsupportedCertVersion") {
                "it is of X.509 version 1; make one of version 3 (openssl x509 -extfile)".to_owned()
            } else {
                other.to_string()
            }
        }
    }
}
