//! An input as several messages: each follows its length, a number of two bytes (little-endian).
//! The last one is as long as the input allows.

pub fn of(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = input.split_first_chunk()?;
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        input = rest;
        Some(piece)
    })
}
