//! What belongs to an id and can be told from the id alone: its window, its fingerprint, and the
//! bytes of its replies and notes.

use crate::common::{DAY, Dice};
use oncedb::{Request, Scope};
use std::time::Duration;

pub const MAX_RESPONSE: usize = 4 << 10;

fn dice(id: &str, salt: u64) -> Dice {
    Dice::new(id.bytes().fold(salt, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)))
}

/// Ids of this kind expire while the load runs.
pub fn is_short(id: &str) -> bool {
    id.starts_with("short")
}

/// Ids of these kinds are claimed by two workers at once.
pub fn is_shared(id: &str) -> bool {
    ["contested", "awaited", "leased"].iter().any(|kind| id.starts_with(kind))
}

pub fn window(id: &str) -> Duration {
    if is_short(id) { Duration::from_millis(1000 + dice(id, 1).below(1500)) } else { DAY }
}

pub fn fingerprint(id: &str) -> Option<[u8; 8]> {
    let mut dice = dice(id, 2);
    (dice.below(2) == 0).then(|| dice.roll().to_le_bytes())
}

/// A claim of `id` as everybody makes it.
pub fn request(scope: &Scope, id: &str) -> Request {
    let request = scope.request(id).window(window(id));
    match fingerprint(id) {
        Some(fingerprint) => request.fingerprint(fingerprint),
        None => request,
    }
}

/// Few bytes, some that go to a response file, and a few replies that are too long to be kept.
pub fn reply(id: &str, number: u32) -> Vec<u8> {
    let mut dice = dice(id, 1000 + u64::from(number));
    // No two replies of one id are alike, nor are their lengths where nothing else is kept.
    let len = match dice.below(20) {
        0 => MAX_RESPONSE as u64 + 1 + u64::from(number),
        1..=4 => 1025 + dice.below(3000),
        _ => 8 + dice.below(300),
    };
    dice.bytes(usize::try_from(len).expect("a few bytes"))
}

/// The note that attempt `attempt` writes as its `number`th.
pub fn note(id: &str, attempt: u32, number: u32) -> Vec<u8> {
    let mut note = format!("{attempt} {number} ").into_bytes();
    let mut dice = dice(id, 2000 + u64::from(attempt) * 100 + u64::from(number));
    let len = dice.below(100);
    note.extend(dice.bytes(usize::try_from(len).expect("a few bytes")));
    note
}

pub fn which_note(id: &str, bytes: &[u8]) -> Result<(u32, u32), String> {
    let text = String::from_utf8_lossy(bytes);
    let mut numbers = text.split(' ').map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(attempt), Some(number)) if note(id, attempt, number) == bytes => Ok((attempt, number)),
        _ => Err(format!("nobody wrote this note of {id}: {text}")),
    }
}
