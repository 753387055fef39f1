//! Records, as far as targets build them.

use arbitrary::Arbitrary;

/// A record to put somewhere.
#[derive(Arbitrary, Clone, Debug)]
pub enum Record {
    Tombstone { key: Vec<u8>, purge_at: u64, forgotten_at: u64 },
    Done { key: Vec<u8>, expires_at: u64, response: Option<Vec<u8>> },
    Released { key: Vec<u8>, given_up_at: u32, window: u8, cause: u8, note: Option<Vec<u8>> },
    Mark { key: Vec<u8>, expires_at: u64, applied_at: u64, timestamp: u64, setter: Option<Vec<u8>> },
    Begin { key: Vec<u8>, claimed_at: u64, attempt: u8, note: Vec<u8> },
    LogStart { segment: u8, last_seq: u64 },
    Raw(Vec<u8>),
}

impl Record {
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Tombstone { key, purge_at, forgotten_at } => {
                let mut bytes = head(3, 0, key, *purge_at);
                bytes.extend_from_slice(&forgotten_at.to_le_bytes());
                bytes
            }
            Self::Done { key, expires_at, response } => {
                let flags = if response.is_some() { 4 } else { 0 };
                let mut bytes = head(1, flags, key, *expires_at);
                // It expires when it is purged, and was claimed and completed then; attempt 1.
                bytes.extend_from_slice(&[0, 0, 0, 1]);
                if let Some(response) = response {
                    put_bytes(&mut bytes, response);
                }
                bytes
            }
            Self::Released { key, given_up_at, window, cause, note } => {
                // An orphan, aborted, or a lapsed lease.
                let cause = [0, 8, 16][usize::from(cause % 3)];
                let flags = cause | if note.is_some() { 4 } else { 0 };
                let mut bytes = head(2, flags, key, u64::from(*given_up_at) + u64::from(*window));
                bytes.push(0);
                put_varint(&mut bytes, (*window).into());
                bytes.push(1);
                if let Some(note) = note {
                    put_bytes(&mut bytes, note);
                }
                bytes
            }
            Self::Mark { key, expires_at, applied_at, timestamp, setter } => {
                let flags = 1 | if setter.is_some() { 2 } else { 0 };
                let mut bytes = head(4, flags, key, *expires_at);
                bytes.push(0);
                bytes.extend_from_slice(&applied_at.to_le_bytes());
                put_varint(&mut bytes, *timestamp);
                if let Some(setter) = setter {
                    put_bytes(&mut bytes, setter);
                }
                bytes
            }
            Self::Begin { key, claimed_at, attempt, note } => {
                let mut bytes = head(5, 4, key, 0);
                bytes.extend_from_slice(&claimed_at.to_le_bytes());
                put_varint(&mut bytes, 1_000_000);
                put_varint(&mut bytes, (*attempt).into());
                put_bytes(&mut bytes, note);
                bytes
            }
            Self::LogStart { segment, last_seq } => {
                let mut bytes = head(6, 0, &[], 0);
                bytes.extend_from_slice(&u64::from(*segment).to_le_bytes());
                bytes.extend_from_slice(&last_seq.to_le_bytes());
                bytes
            }
            Self::Raw(bytes) => bytes.clone(),
        }
    }

    /// The key, if it is surely a record that may be in a run.
    #[must_use]
    pub fn lasting_key(&self) -> Option<&[u8]> {
        match self {
            Self::Tombstone { key, .. }
            | Self::Done { key, .. }
            | Self::Released { key, .. }
            | Self::Mark { key, .. } => Some(key),
            Self::Begin { .. } | Self::LogStart { .. } | Self::Raw(_) => None,
        }
    }

    /// Until when it hides older ones of its key, and when it was made, if it may be in a run.
    #[must_use]
    pub fn times(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Tombstone { purge_at, forgotten_at, .. } => Some((purge_at, forgotten_at)),
            Self::Done { expires_at, .. } => Some((expires_at, expires_at)),
            Self::Released { given_up_at, window, .. } => {
                Some((u64::from(given_up_at) + u64::from(window), given_up_at.into()))
            }
            Self::Mark { expires_at, applied_at, .. } => Some((expires_at, applied_at)),
            Self::Begin { .. } | Self::LogStart { .. } | Self::Raw(_) => None,
        }
    }

    /// Whether it is surely a record that may be in the journal.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !matches!(self, Self::Raw(_))
    }
}

fn head(kind: u8, flags: u8, key: &[u8], purge_at: u64) -> Vec<u8> {
    let key = &key[..key.len().min(200)];
    let mut bytes = vec![kind, flags];
    bytes.extend_from_slice(&u16::try_from(key.len()).unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&purge_at.to_le_bytes());
    bytes
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The 64 bytes that run and response files begin with.
#[must_use]
pub fn file_header(magic: [u8; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&magic);
    bytes[8] = 1;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}
