//! An authority, the certificates that it signs, and their files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

/// The files of a certificate and its key, in PEM.
#[derive(Clone)]
pub struct SignedFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Signs certificates for servers and clients into a directory that lives as long as it.
pub struct CertAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    dir: PathBuf,
}

impl CertAuthority {
    /// An authority whose files begin with `name` in `dir`.
    pub fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let authority = Self {
            issuer: Issuer::new(params, key),
            pem,
            dir: dir.join(name),
        };
        std::fs::create_dir(&authority.dir).expect("a directory");
        set_mode(&authority.dir, 0o755);
        std::fs::write(authority.roots(), &authority.pem).expect("written");
        set_mode(&authority.roots(), 0o644);
        authority
    }

    /// Its own certificate.
    pub fn roots(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A certificate for a server of this machine. Its key is the server's; it may run as another user.
    pub fn server(&self) -> SignedFiles {
        let files = self.sign("server", &["localhost", "127.0.0.1"], 2100);
        let script =
            "if [ \"$(id -u)\" = 0 ] && id postgres >/dev/null; then chown postgres \"$0\"; fi";
        let done = Command::new("sh")
            .args(["-c", script])
            .arg(&files.key)
            .status();
        assert!(done.expect("sh").success());
        files
    }

    /// A client's certificate, valid to the end of the year before `until`.
    pub fn client(&self, name: &str, until: i32) -> SignedFiles {
        self.sign(name, &[], until)
    }

    /// The same for a key that was made elsewhere, in PKCS#8.
    pub fn client_with(&self, name: &str, key: &str) -> SignedFiles {
        let key = KeyPair::from_pem(key).expect("a key");
        self.sign_key(name, &[], 2100, &key)
    }

    fn sign(&self, name: &str, hosts: &[&str], until: i32) -> SignedFiles {
        let key = KeyPair::generate().expect("a key");
        self.sign_key(name, hosts, until, &key)
    }

    fn sign_key(&self, name: &str, hosts: &[&str], until: i32, key: &KeyPair) -> SignedFiles {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let signed = params.signed_by(key, &self.issuer).expect("a certificate");
        let files = SignedFiles {
            certificate: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        };
        std::fs::write(&files.certificate, signed.pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        set_mode(&files.certificate, 0o644);
        set_mode(&files.key, 0o600);
        files
    }
}

/// Sets the mode, whatever the umask is.
pub fn set_mode(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("a mode");
}
