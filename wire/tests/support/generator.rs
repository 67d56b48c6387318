//! Random bodies from templates, and random damage to them.
#![allow(dead_code)] // Each test binary uses a part of this.

/// Cases for each type in a differential test: `WIRE_ROUNDS`, or 1000.
pub(crate) fn rounds() -> usize {
    match std::env::var("WIRE_ROUNDS") {
        Ok(text) => text.parse().expect("WIRE_ROUNDS is a number"),
        Err(_) => 1_000,
    }
}

/// A small seeded generator (xorshift).
pub(crate) struct Generator(u64);

impl Generator {
    /// A fresh seed for each run, or the one in `WIRE_TEST_SEED`; prints it either way.
    pub(crate) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let seed = match std::env::var("WIRE_TEST_SEED") {
            Ok(text) => text.parse().expect("WIRE_TEST_SEED is a number"),
            Err(_) => RandomState::new().hash_one(()),
        };
        println!("reproduce with WIRE_TEST_SEED={seed}");
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 8) as usize % limit
    }

    fn text(&mut self, min: usize) -> Vec<u8> {
        let length = min + self.below(12);
        let letters = "aZ0-_.äß".as_bytes();
        let all: Vec<char> = std::str::from_utf8(letters)
            .expect("text")
            .chars()
            .collect();
        (0..length)
            .map(|_| all[self.below(all.len())])
            .collect::<String>()
            .into_bytes()
    }

    fn name(&mut self, out: &mut Vec<u8>) {
        let text = self.text(1);
        out.push(text.len() as u8);
        out.extend(text);
    }

    fn identifier(&mut self, out: &mut Vec<u8>) {
        if self.below(2) == 0 {
            out.extend([1, 4]);
            out.extend((self.next() as u32).to_le_bytes());
        } else {
            out.push(2);
            self.name(out);
        }
    }

    fn options(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for index in 0..self.below(4) {
            let mut key = self.text(1);
            key.push(b'0' + index as u8);
            let mut value = self.text(1);
            let kinds = [
                (1, value.len()),
                (2, value.len()),
                (3, 1),
                (11, 4),
                (12, 8),
                (77, 3),
            ];
            let (kind, length) = kinds[self.below(kinds.len())];
            value.resize(length, 1);
            for (kind, data) in [(2, key), (kind, value)] {
                out.push(kind);
                out.extend((data.len() as u32).to_le_bytes());
                out.extend(data);
            }
        }
        out
    }

    fn flags(&mut self, count: usize, out: &mut Vec<u8>) {
        out.extend(
            (0..count)
                .map(|_| (self.next() >> 9) as u8 & 1)
                .collect::<Vec<_>>(),
        );
    }

    fn permissions(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.flags(10, &mut out);
        for stream in 0..self.below(3) {
            out.push(1);
            out.extend((stream as u32 * 7).to_le_bytes());
            self.flags(6, &mut out);
            for topic in 0..self.below(3) {
                out.push(1);
                out.extend((topic as u32 * 3).to_le_bytes());
                self.flags(4, &mut out);
            }
            out.push(0);
        }
        out.push(0);
        out
    }

    /// A body from a template of blanks-separated tokens:
    ///
    /// `1 2 4 8 16` an integer of that many bytes, `f` a float, `=n` the `u32` n, `.n` the byte
    /// n, `b` a boolean, `I` an identifier, `N` a name, `t` a short text, `T` a long text, `B`
    /// long bytes, `C` a consumer, `P` an optional partition, `S` a strategy, `R`
    /// partitioning, `A` an ack level, `O` options to the end, `o` options with length, `p`
    /// optional permissions, `u` permissions of user details.
    pub(crate) fn body(&mut self, template: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for token in template.split_whitespace() {
            self.token(token, &mut out);
        }
        out
    }

    fn token(&mut self, token: &str, out: &mut Vec<u8>) {
        let prefixed = |bytes: Vec<u8>, out: &mut Vec<u8>| {
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        };
        match token {
            "1" | "2" | "4" | "8" | "16" => {
                let width: usize = token.parse().expect("a width");
                let wide = [self.next().to_le_bytes(), self.next().to_le_bytes()].concat();
                out.extend(&wide[..width]);
            }
            "f" => out.extend((self.below(1000) as f32 / 7.0).to_le_bytes()),
            "b" => out.push(self.below(2) as u8),
            "I" => self.identifier(out),
            "N" => self.name(out),
            "t" => {
                let text = self.text(0);
                out.push(text.len() as u8);
                out.extend(text);
            }
            "T" | "B" => prefixed(self.text(0), out),
            "C" => {
                out.push(1 + self.below(2) as u8);
                self.identifier(out);
            }
            "P" if self.below(2) == 0 => out.extend([0; 5]),
            "P" => {
                out.push(1);
                out.extend((self.next() as u32).to_le_bytes());
            }
            "S" => {
                out.push(1 + self.below(5) as u8);
                out.extend(self.next().to_le_bytes());
            }
            "R" => self.partitioning(out),
            "A" => out.push(self.below(2) as u8),
            "O" => out.extend(self.options()),
            "o" => prefixed(self.options(), out),
            "p" | "u" if self.below(2) == 0 => {
                out.push(1);
                prefixed(self.permissions(), out);
            }
            "p" => out.push(0),
            "u" => out.extend([0; 4]),
            literal => match (literal.strip_prefix('='), literal.strip_prefix('.')) {
                (Some(number), _) => {
                    let number: u32 = number.parse().expect("a number");
                    out.extend(number.to_le_bytes());
                }
                (_, Some(byte)) => out.push(byte.parse().expect("a byte")),
                _ => panic!("unknown token {literal}"),
            },
        }
    }

    fn partitioning(&mut self, out: &mut Vec<u8>) {
        match self.below(3) {
            0 => out.extend([1, 0]),
            1 => {
                out.extend([2, 4]);
                out.extend((self.next() as u32).to_le_bytes());
            }
            _ => {
                out.push(3);
                self.name(out);
            }
        }
    }

    /// Changes, cuts or extends a body a little.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            match self.below(4) {
                0 => bytes.truncate(self.below(bytes.len() + 1)),
                1 => bytes.push(self.next() as u8),
                _ if bytes.is_empty() => {}
                2 => {
                    let at = self.below(bytes.len());
                    bytes[at] = self.below(6) as u8;
                }
                _ => {
                    let at = self.below(bytes.len());
                    bytes[at] ^= 1 << self.below(8);
                }
            }
        }
    }
}
