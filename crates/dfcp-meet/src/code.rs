//! The code as people say it: a number, which says where to look, and words, which are the secret.
//!
//! The number never depends on the words, so whoever learns it learns nothing about them.

use std::fmt;
use std::str::FromStr;

use dfcp_proto::SecretRng;
use zeroize::Zeroizing;

/// Fewest words of a code.
pub const MIN_WORDS: usize = 2;
/// Most words of a code.
pub const MAX_WORDS: usize = 8;
/// Longest word.
const MAX_WORD: usize = 16;
/// Largest number: what nine digits hold.
pub const MAX_NUMBER: u32 = 999_999_999;

/// The words of a code.
#[derive(Clone, PartialEq, Eq)]
pub struct Words(Zeroizing<String>);

impl Words {
    /// `count` words of `list`, drawn at random.
    ///
    /// # Panics
    /// If `list` is empty: programs have theirs built in.
    pub fn draw(list: &[&str], count: usize, rng: &mut SecretRng) -> Self {
        let count = count.clamp(MIN_WORDS, MAX_WORDS);
        let mut text = Zeroizing::new(String::new());
        for i in 0..count {
            if i > 0 {
                text.push('-');
            }
            text.push_str(list[rng.below(list.len() as u64) as usize]);
        }
        Self(text)
    }

    /// The words with hyphens between them: the password of the key exchange.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split('-')
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Words")
    }
}

/// A code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Where to look: from 1 to 999,999,999.
    pub number: u32,
    /// The secret.
    pub words: Words,
}

/// A text is not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// It has no number at its beginning.
    #[error("a code begins with a number, as in 7-otter-lamp")]
    Number,
    /// It has too few or too many words.
    #[error("a code is a number and 2 to 8 words, as in 7-otter-lamp")]
    Words,
    /// A word is not of the letters a to z, or too long.
    #[error("the words of a code are of the letters a to z")]
    Letters,
}

impl FromStr for Code {
    type Err = CodeError;

    /// Reads a code, whatever people put between its parts and however they write letters.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let parts: Vec<_> = text
            .split(|c: char| c == '-' || c == '_' || c.is_whitespace())
            .filter(|part| !part.is_empty())
            .collect();
        let (number, words) = parts.split_first().ok_or(CodeError::Number)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = number.parse().map_err(|_| CodeError::Number)?;
        if !digits || !(1..=MAX_NUMBER).contains(&number) {
            return Err(CodeError::Number);
        }
        if !(MIN_WORDS..=MAX_WORDS).contains(&words.len()) {
            return Err(CodeError::Words);
        }
        let is_word = |word: &&str| {
            word.len() <= MAX_WORD && word.bytes().all(|byte| byte.is_ascii_alphabetic())
        };
        if !words.iter().all(is_word) {
            return Err(CodeError::Letters);
        }
        let words = Words(Zeroizing::new(words.join("-").to_ascii_lowercase()));
        Ok(Self { number, words })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.words.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_people_write_them() {
        let code: Code = "7-otter-lamp".parse().unwrap();
        assert_eq!(code.to_string(), "7-otter-lamp");
        for text in ["7 Otter lamp", " 7-otter--LAMP ", "007_otter_lamp"] {
            assert_eq!(text.parse::<Code>().unwrap(), code, "{text}");
        }
        assert!("7-otter-lamp-rope".parse::<Code>().unwrap() != code);
        for (text, error) in [
            ("", CodeError::Number),
            ("otter-lamp", CodeError::Number),
            ("0-otter-lamp", CodeError::Number),
            ("+7-otter-lamp", CodeError::Number),
            ("1000000000-otter-lamp", CodeError::Number),
            ("99999999999999-otter-lamp", CodeError::Number),
            ("7-otter", CodeError::Words),
            ("7-a-b-c-d-e-f-g-h-i", CodeError::Words),
            ("7-otter-l4mp", CodeError::Letters),
            ("7-otter-lämp", CodeError::Letters),
        ] {
            assert_eq!(text.parse::<Code>(), Err(error), "{text}");
        }
    }

    #[test]
    fn words_are_drawn_from_the_list_and_never_shown_by_debug() {
        let mut rng = SecretRng::new(&[1; 32], "words");
        let list = ["acorn", "otter", "lamp"];
        let words = Words::draw(&list, 4, &mut rng);
        assert!(words.iter().count() == 4 && words.iter().all(|word| list.contains(&word)));
        let number = 7;
        let shown = format!("{:?}", Code { number, words });
        assert!(list.iter().all(|word| !shown.contains(word)), "{shown}");
    }
}
