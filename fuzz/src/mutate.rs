//! Changes inputs: bits, numbers at their edges, words of the target, pieces of other inputs. The same seed makes the same changes.

/// A generator of random numbers (xorshift64*) that a seed determines.
pub(crate) struct Random(u64);

/// Numbers at which lengths and counts go wrong.
const EDGES: [i64; 24] = [
    0,
    1,
    -1,
    -2,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    17,
    127,
    128,
    255,
    256,
    4096,
    32767,
    65535,
    65536,
    1 << 20,
    i32::MAX as i64,
    i64::MAX,
    i64::MIN,
];

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Zero would stay zero, and small seeds would begin alike.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, which is not zero.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // Fits: less than `n`.
        (self.next() % n as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 32) as u8
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// An input made of one of `corpus`, with one to eight changes.
    pub(crate) fn input(&mut self, corpus: &[Vec<u8>], words: &[&[u8]], max_len: usize) -> Vec<u8> {
        let mut data = match corpus {
            [] => Vec::new(),
            corpus => self.pick(corpus).clone(),
        };
        for _ in 0..1 + self.below(4) * self.below(3) {
            self.change(&mut data, corpus, words);
        }
        data.truncate(max_len);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&[u8]]) {
        let at = self.below(data.len() + 1);
        match self.below(12) {
            0 | 1 if at < data.len() => data[at] ^= 1 << self.below(8),
            2 if at < data.len() => data[at] = self.byte(),
            3 => data.insert(at, self.byte()),
            4 => data.truncate(at),
            5 => {
                let end = at + self.below(data.len() - at + 1).min(16);
                data.drain(at..end);
            }
            6 => {
                let end = at + self.below(data.len() - at + 1).min(64);
                let piece = data[at..end].to_vec();
                let to = self.below(data.len() + 1);
                data.splice(to..to, piece);
            }
            7 => self.edge_in_binary(data, at),
            8 => self.edge_in_digits(data),
            9 if !corpus.is_empty() => {
                let other = self.pick(corpus);
                let from = self.below(other.len() + 1);
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            10 | 11 if !words.is_empty() => {
                let word = *self.pick(words);
                // In place of as many bytes, or between them.
                let end = if self.below(2) == 0 {
                    at
                } else {
                    data.len().min(at + word.len())
                };
                data.splice(at..end, word.iter().copied());
            }
            _ => data.push(self.byte()),
        }
    }

    /// Writes a number at its edge over one, two, four or eight bytes, in either order.
    fn edge_in_binary(&mut self, data: &mut [u8], at: usize) {
        let value = *self.pick(&EDGES);
        let width = [1, 2, 4, 8][self.below(4)];
        let Some(place) = data.get_mut(at..at + width) else {
            return;
        };
        if self.below(2) == 0 {
            place.copy_from_slice(&value.to_be_bytes()[8 - width..]);
        } else {
            place.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    /// Writes a number at its edge, or beside it, in place of one in digits.
    fn edge_in_digits(&mut self, data: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..data.len())
            .filter(|&i| data[i].is_ascii_digit() && (i == 0 || !data[i - 1].is_ascii_digit()))
            .collect();
        if starts.is_empty() {
            return;
        }
        let start = *self.pick(&starts);
        let digits = data[start..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let old = std::str::from_utf8(&data[start..start + digits])
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        let new = match (self.below(3), old) {
            (0, Some(old)) => old.wrapping_add(1),
            (1, Some(old)) => old.wrapping_sub(1),
            _ => *self.pick(&EDGES),
        };
        data.splice(start..start + digits, new.to_string().into_bytes());
    }
}
