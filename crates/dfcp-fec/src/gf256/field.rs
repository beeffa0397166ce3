//! The field GF(256) = GF(2)\[x\] / (x⁸ + x⁴ + x³ + x + 1) by single elements.
//!
//! 0x11B is the polynomial of AES and of the GFNI instructions, which is why it is used here
//! rather than the 0x11D of RFC 6330 and RFC 5510.

const POLYNOMIAL: u16 = 0x11B;

/// Product of two elements.
pub const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    let mut shifted = a as u16;
    let mut bit = 0;
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted & 0x100 != 0 {
            shifted ^= POLYNOMIAL;
        }
        bit += 1;
    }
    product as u8
}

/// Inverse of an element; zero, which has none, yields zero.
pub fn inv(a: u8) -> u8 {
    INVERSES[usize::from(a)]
}

/// Products of one element with every low and every high half of a byte, so that a product is
/// `low[x & 15] ^ high[x >> 4]`: two table look-ups of the size of a byte shuffle.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Nibbles {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

impl Nibbles {
    #[inline(always)]
    pub(super) fn mul(&self, x: u8) -> u8 {
        self.low[usize::from(x & 15)] ^ self.high[usize::from(x >> 4)]
    }
}

pub(super) static NIBBLES: [Nibbles; 256] = {
    let mut tables = [Nibbles {
        low: [0; 16],
        high: [0; 16],
    }; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            tables[c].low[x] = mul(c as u8, x as u8);
            tables[c].high[x] = mul(c as u8, (x << 4) as u8);
            x += 1;
        }
        c += 1;
    }
    tables
};

static INVERSES: [u8; 256] = {
    let mut inverses = [0; 256];
    let mut a = 1;
    while a < 256 {
        // a²⁵⁴ = a⁻¹: the multiplicative group has 255 elements.
        let mut power = 1u8;
        let mut step = 0;
        while step < 254 {
            power = mul(power, a as u8);
            step += 1;
        }
        inverses[a] = power;
        a += 1;
    }
    inverses
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_products() {
        // FIPS 197 sections 4.2 and 4.2.1.
        assert_eq!(mul(0x57, 0x83), 0xC1);
        assert_eq!(mul(0x57, 0x13), 0xFE);
    }

    #[test]
    fn inverses_and_nibbles_agree_with_mul() {
        assert_eq!(inv(0), 0);
        for a in 1..=255 {
            assert_eq!(mul(a, inv(a)), 1);
            for b in 0..=255 {
                assert_eq!(NIBBLES[usize::from(a)].mul(b), mul(a, b));
            }
        }
    }
}
