//! Text from elsewhere, as it may be shown: a name, a reason or a message of the other side could
//! move the cursor, recolour the terminal, or turn the direction in which a line is read.

use std::borrow::Cow;

/// Whether a character does more than stand where it is: controls, those that change the direction
/// of text (Unicode TR 9), line ends of Unicode, invisible ones and tags.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with such characters written out, as `\u{202e}`: for people.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c.escape_unicode().to_string())
}

/// JSON with such characters written out, as `\u202e`: it means the same. Outside strings JSON has
/// none but its white space, which is no control character of a line.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    replaced(json, |c| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units);
        units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
    })
}

fn replaced(text: &str, write: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let each = text.chars().map(|c| match is_active(c) {
        true => write(c),
        false => c.to_string(),
    });
    Cow::Owned(each.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_written_out_and_nothing_else() {
        for plain in ["a b~", "Größe 漢字 🦦", "say \"\\n\"", ""] {
            assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
        }
        for (text, shown) in [
            ("\x1b[2Jgone", "\\u{1b}[2Jgone"),
            ("a\ndfcp: done\r", "a\\u{a}dfcp: done\\u{d}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("cod\u{202e}exe.txt", "cod\\u{202e}exe.txt"),
            ("\u{2066}\u{200b}\u{e0041}", "\\u{2066}\\u{200b}\\u{e0041}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let text = "\x1b\u{9b}\u{202e}\u{e0041} a\n";
        let json = serde_json::to_string(text).expect("JSON");
        let shown = printable_json(&json);
        assert!(!shown.contains(is_active), "{shown:?}");
        let again: String = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(again, text);
    }
}
