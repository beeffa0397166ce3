//! Self-signed certificates, for peers that cannot do without.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// The name in all of them.
pub const NAME: &str = "localhost";

fn generate() -> anyhow::Result<CertifiedKey<rcgen::KeyPair>> {
    Ok(generate_simple_self_signed(vec![NAME.to_owned()])?)
}

/// Makes a certificate, leaves it in `path` for the other side, and returns it with its key.
pub fn publish(
    path: &Path,
) -> anyhow::Result<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>)> {
    let made = generate()?;
    let certificate = made.cert.der().clone();
    fs::write(path, &certificate).with_context(|| path.display().to_string())?;
    Ok((certificate, made.signing_key.serialize_der().into()))
}

/// Reads what [`publish`] left.
pub fn read(path: &Path) -> anyhow::Result<CertificateDer<'static>> {
    let der = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(der.into())
}

/// Writes `cert.pem` and `key.pem` into a directory.
pub fn write_pem(directory: &Path) -> anyhow::Result<()> {
    let made = generate()?;
    fs::write(directory.join("cert.pem"), made.cert.pem())?;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut key = options.open(directory.join("key.pem"))?;
    key.write_all(made.signing_key.serialize_pem().as_bytes())?;
    Ok(())
}
