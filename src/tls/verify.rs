//! Certificates that are asked for less than a trusted issuer and the host's name, and why one is refused.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::error::{ErrorCode, LockError};

/// Accepts any name; with roots it asks for an issuer among them, without it asks for nothing.
///
/// The peer always has to prove that it has the certificate's key: channel binding rests on that.
#[derive(Debug)]
pub(super) struct Lenient {
    pub(super) roots: Option<RootCertStore>,
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
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A failure of TLS as one of ours.
///
/// A certificate that is refused is `AuthFailed`, ours or the server's: somebody has to change something, and trying again
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
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::AccessDenied,
        ) => (
            ErrorCode::AuthFailed,
            "the server asks for a client certificate".to_owned(),
        ),
        Error::AlertReceived(alert) => (
            ErrorCode::ServiceUnavailable,
            format!("the server refused it ({alert:?})"),
        ),
        Error::InvalidMessage(_) => (
            ErrorCode::ServiceUnavailable,
            "the server does not speak TLS on this port".to_owned(),
        ),
        other => (ErrorCode::ServiceUnavailable, other.to_string()),
    };
    LockError::new(code, format!("the TLS {phase}: {why}"))
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
        CertificateError::Revoked => "it was revoked".to_owned(),
        other => other.to_string(),
    }
}
