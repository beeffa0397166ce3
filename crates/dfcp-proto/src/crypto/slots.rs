//! The secrets that a server's ephemeral keys, cookies and connection IDs come from: one for each slot
//! of two minutes, drawn when the first client asks in it and wiped when the next slot is over. Who
//! reads the server's memory later learns nothing about sessions before that.

use super::keys::{Secret, SecretRng};

/// See the module's text.
#[derive(Debug)]
pub(super) struct SlotSecrets {
    rng: SecretRng,
    /// By slot, ascending: of this one and the one before.
    kept: Vec<(u32, Secret)>,
}

impl SlotSecrets {
    pub fn new(rng: SecretRng) -> Self {
        let kept = Vec::new();
        Self { rng, kept }
    }

    /// It is slot `now`: wipes what is older than the one before.
    pub fn forget_before(&mut self, now: u32) {
        self.kept.retain(|&(slot, _)| slot >= now.saturating_sub(1));
    }

    /// Draws the secret of slot `now`, unless it is there.
    pub fn draw(&mut self, now: u32) {
        self.forget_before(now);
        if self.of(now).is_none() {
            let secret = self.rng.secret();
            self.kept.push((now, secret));
        }
    }

    /// The secret of a slot, while it is kept.
    pub fn of(&self, slot: u32) -> Option<&Secret> {
        let mut kept = self.kept.iter();
        kept.find(|(other, _)| *other == slot)
            .map(|(_, secret)| secret)
    }

    /// The oldest slot of which there is a secret.
    pub fn oldest(&self) -> Option<u32> {
        self.kept.first().map(|&(slot, _)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_secrets_are_kept_and_no_slot_gets_its_own_again() {
        let mut slots = SlotSecrets::new(SecretRng::new(&[1; 32], "slots"));
        let mut all: Vec<[u8; 32]> = Vec::new();
        for now in 5..20 {
            slots.draw(now);
            slots.draw(now);
            let drawn = **slots.of(now).expect("drawn");
            assert!(!all.contains(&drawn));
            all.push(drawn);
            assert_eq!(slots.of(now - 1).is_some(), now > 5);
            assert!(slots.of(now - 2).is_none() && slots.kept.len() <= 2);
        }
        slots.forget_before(20);
        assert_eq!(slots.oldest(), Some(19));
        slots.forget_before(21);
        assert!(slots.oldest().is_none());
        // A slot whose secret was wiped could be had again only by drawing the same one.
        slots.draw(19);
        assert!(!all.contains(slots.of(19).expect("drawn")));
    }
}
