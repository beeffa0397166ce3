//! Keys that are turned away, told once each: an operator is to see why somebody does not get in, and
//! whoever makes many keys is not to fill the log.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use dfcp::PublicKey;

use crate::phrase::phrase;

/// Keys whose refusal is told; whoever makes more of them only fills the log.
const MAX_TOLD: usize = 100;

/// Keys whose refusal was told.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeSet<PublicKey>>);

impl Refusals {
    /// That `key` is refused, and why, if it is to be told.
    pub fn news(&self, key: &PublicKey, why: impl FnOnce() -> String) -> Option<String> {
        let is_news = {
            let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            told.len() < MAX_TOLD && told.insert(*key)
        };
        is_news.then(|| format!("refused {key} ({}): {}", phrase(key), why()))
    }

    /// What was refused may be allowed now, and be refused again later.
    pub fn begin_anew(&self) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_told_once_and_many_keys_do_not_fill_the_log() {
        let refusals = Refusals::default();
        let told = |count| {
            let keys = (0..count).map(|_| dfcp::generate_key().unwrap().public());
            let is_news = |key: &PublicKey| refusals.news(key, String::new).is_some();
            keys.filter(|key| is_news(key) && !is_news(key)).count()
        };
        assert_eq!(told(2 * MAX_TOLD), MAX_TOLD);
        refusals.begin_anew();
        assert_eq!(told(1), 1);
    }
}
