//! X25519 (RFC 7748 §5) of aws-lc by its own functions, which aws-lc-rs does not show. What aws-lc-rs has
//! of it is the interface to keys of any kind, and whoever links that links every kind: RSA, four curves of
//! ECDSA, ML-DSA and ML-KEM, 1.3 MB in a program that has no use for them.

#![allow(unsafe_code)]

/// The public key of a private one; any 32 bytes are a private key.
pub(super) fn public_of(private: &[u8; 32]) -> [u8; 32] {
    let mut public = [0; 32];
    // SAFETY: the function reads 32 bytes at the second pointer and writes 32 at the first
    // (X25519_PRIVATE_KEY_LEN, X25519_PUBLIC_VALUE_LEN); both are references to that many, and differ.
    unsafe { aws_lc_sys::X25519_public_from_private(public.as_mut_ptr(), private.as_ptr()) };
    public
}

/// The secret that a private key shares with the owner of a public one; `None` if that is a point of small
/// order, with which everybody shares zeros.
pub(super) fn agree(private: &[u8; 32], public: &[u8; 32], shared: &mut [u8; 32]) -> Option<()> {
    let (out, private, public) = (shared.as_mut_ptr(), private.as_ptr(), public.as_ptr());
    // SAFETY: the function reads 32 bytes at the second and the third pointer and writes 32 at the first
    // (X25519_SHARED_KEY_LEN); all are references to that many, and the one written to is exclusive.
    let agreed = unsafe { aws_lc_sys::X25519(out, private, public) };
    (agreed == 1).then_some(())
}
