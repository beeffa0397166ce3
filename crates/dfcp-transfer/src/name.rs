//! Names of any bytes as text, for the wire, for patterns and for people.
//!
//! A backslash and two lowercase hexadecimal digits stand for one byte. So are written: the backslash
//! itself, each byte of a control character, and each byte that is no part of well-formed UTF-8; all
//! else stands for itself. Every name has exactly one such text and ordinary names are their own, so
//! no two texts mean the same name and none can be confused with another's.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Longest component of a path in bytes (`NAME_MAX` of Linux and most file systems).
pub(crate) const MAX_COMPONENT: usize = 255;

/// The text of a name.
pub fn encode(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        let mut plain = chunk.valid();
        while let Some((at, c)) = plain.char_indices().find(|(_, c)| is_escaped(*c)) {
            text.push_str(&plain[..at]);
            let end = at + c.len_utf8();
            escape(&mut text, &plain.as_bytes()[at..end]);
            plain = &plain[end..];
        }
        text.push_str(plain);
        escape(&mut text, chunk.invalid());
    }
    text
}

/// The name that a text stands for; `None` if it is the text of no name.
pub fn decode(text: &str) -> Option<Cow<'_, OsStr>> {
    if is_plain(text) {
        return Some(Cow::Borrowed(OsStr::new(text)));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('\\');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    let name = OsString::from_vec(bytes);
    (encode(&name) == text).then_some(Cow::Owned(name))
}

/// Whether a text has nothing that is written out: the name has the same bytes.
pub fn is_plain(text: &str) -> bool {
    !text.contains(is_escaped)
}

/// The path of a text that was checked.
pub(crate) fn path(text: &str) -> Cow<'_, Path> {
    match decode(text) {
        Some(Cow::Borrowed(name)) => Cow::Borrowed(Path::new(name)),
        Some(Cow::Owned(name)) => Cow::Owned(name.into()),
        None => Cow::Borrowed(Path::new(text)),
    }
}

/// The text of the path beside `path` whose name has this ending; where that would be too long for a
/// file system, of one that has a hash of the name in its place.
pub(crate) fn beside(path: &str, ending: &str) -> String {
    let start = path.rfind('/').map_or(0, |slash| slash + 1);
    let name = self::path(&path[start..]);
    if name.as_os_str().len() + ending.len() <= MAX_COMPONENT {
        return format!("{path}{ending}");
    }
    let hash = blake3::hash(name.as_os_str().as_bytes()).to_hex();
    format!("{}{hash}{ending}", &path[..start])
}

fn is_escaped(c: char) -> bool {
    c == '\\' || c.is_control()
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_text_and_ordinary_names_are_their_own() {
        for plain in ["a", "ä/日本 b", "C:x", "\u{202e}", "", "%ff", "a\"b"] {
            assert_eq!(encode(OsStr::new(plain)), plain);
            assert_eq!(decode(plain).as_deref(), Some(OsStr::new(plain)));
        }
        for (name, text) in [
            (&b"caf\xe9"[..], r"caf\e9"),
            (b"a\\b", r"a\5cb"),
            (b"\\ff", r"\5cff"),
            (b"a\nb\x1b[2J", r"a\0ab\1b[2J"),
            ("\u{9b}".as_bytes(), r"\c2\9b"),
            (b"\xff\xfe\xc3", r"\ff\fe\c3"),
        ] {
            let name = OsStr::from_bytes(name);
            assert_eq!(encode(name), text);
            assert_eq!(decode(text).as_deref(), Some(name));
        }
        for every in 0..=255 {
            let bytes = [every, b'x', every];
            let name = OsStr::from_bytes(&bytes);
            assert_eq!(decode(&encode(name)).as_deref(), Some(name));
        }
        // Other spellings of a name would be other names to whoever compares texts.
        for wrong in [
            r"\61", r"\2e\2e", r"a\2fb", r"\FF", r"\c3\a4", "\\", r"\f", r"\+f", "a\nb", r"\é",
        ] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_stands_beside_a_long_name_fits() {
        assert_eq!(beside("d/a", ".part"), "d/a.part");
        let longest = "x".repeat(250);
        assert_eq!(beside(&longest, ".part"), longest.clone() + ".part");
        assert_eq!(beside(&(longest + "x"), ".part").len(), 64 + 5);
        let long = format!("d/{}", "x".repeat(255));
        let other = beside(&long, ".part");
        assert_eq!(other.len(), "d/".len() + 64 + ".part".len());
        assert_eq!(
            beside(&format!("d/{}", r"\ff".repeat(240)), ".part").len(),
            2 + 720 + 5
        );
    }
}
