//! The passwords that the tests open clients with. No output may hold one; `tests/search-output.sh` reads the same list.

/// One in a line.
const LIST: &str = include_str!("passwords.txt");

/// Whether a text holds one of them.
pub fn told(text: &[u8]) -> bool {
    LIST.lines()
        .any(|word| text.windows(word.len()).any(|part| part == word.as_bytes()))
}
