//! The one encoding of everything that lasts: in the journal, in memory and in runs alike.
//!
//! | field | bytes | in |
//! |---|---|---|
//! | kind | 1 | all: 1 done, 2 released, 3 tombstone, 4 mark, 5 begin, 6 log start |
//! | flags | 1 | all, see below |
//! | key length | 2 | all |
//! | key | | all; empty in a log start |
//! | purge at | 8 | all: until then the record shadows older ones of its key |
//! | `expires_at` | v: `purge_at − expires_at` | done, released, mark |
//! | `completed_at` | v: `expires_at − completed_at` | done |
//! | `claimed_at` | v: `completed_at − claimed_at` | done |
//! | `given_up_at` | v: `expires_at − given_up_at` | released |
//! | `forgotten_at` | 8 | tombstone |
//! | `applied_at` | 8 | mark |
//! | `claimed_at`, window | 8, v | begin |
//! | attempt | v | done, released, begin |
//! | fingerprint | v length, bytes | done, begin; flag 2 |
//! | timestamp | v: number, or zigzag microseconds | mark; flag 1: a sequence number |
//! | setter id | v length, bytes | mark; flag 2 |
//! | note | v length, bytes | released, begin; flag 4 |
//! | response | flags 4 and 8, see [`Reply`] | done |
//! | segment, sequence number | 8, 8 | log start |
//!
//! v: a variable-length integer. Flag 1 of a done record: a refusal. Flags 8 and 16 of a released
//! record: its cause; 32: it hides a completion. Flag 4 of a mark: it hides a later one. Integers are
//! little-endian, times are nanoseconds of the store's timeline.

use std::time::Duration;

use crate::clock::{Time, nanos};
use crate::codec::{Reader, put_bytes, put_varint};
use crate::guard::Cause;
use crate::timestamp::Timestamp;

/// A record, borrowed from its encoding or from what is about to be encoded.
///
/// A record whose `purge_at` has come reads as if it were not there. Until then it hides every
/// older record of its key, which is why `purge_at` is never before that of a record it replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StoredRecord<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) purge_at: Time,
    pub(crate) body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Body<'a> {
    /// A completed claim.
    Done(Done<'a>),
    /// A claim that was given up; reads as absent, except to the next attempt.
    Released(Released<'a>),
    /// A forgotten key or mark.
    Tombstone { forgotten_at: Time },
    /// The last applied timestamp of an entity.
    Mark(Mark<'a>),
    /// A claim in progress; only in the journal.
    Begin(Begin<'a>),
    /// The first frame after a recovery: where the log before it ended; only in the journal.
    LogStart { segment: u64, last_seq: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done<'a> {
    pub(crate) claimed_at: Time,
    pub(crate) completed_at: Time,
    pub(crate) expires_at: Time,
    pub(crate) attempt: u32,
    pub(crate) refusal: bool,
    pub(crate) fingerprint: Option<&'a [u8]>,
    pub(crate) reply: Reply<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Released<'a> {
    pub(crate) given_up_at: Time,
    pub(crate) expires_at: Time,
    pub(crate) attempt: u32,
    pub(crate) cause: Cause,
    /// It hides a completion, forgotten or taken back: until this is durable, a crash may bring that again.
    pub(crate) hides: bool,
    pub(crate) note: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark<'a> {
    pub(crate) timestamp: Timestamp,
    pub(crate) applied_at: Time,
    pub(crate) expires_at: Time,
    /// It hides a later mark, forgotten or taken back: until this is durable, a crash may bring that again.
    pub(crate) hides: bool,
    pub(crate) setter: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Begin<'a> {
    pub(crate) claimed_at: Time,
    pub(crate) window: Duration,
    pub(crate) attempt: u32,
    pub(crate) fingerprint: Option<&'a [u8]>,
    pub(crate) note: Option<&'a [u8]>,
}

/// The response kept with a completion.
///
/// | flags | bytes | form |
/// |---|---|---|
/// | 0 | | none |
/// | 4 | v length, bytes | inline |
/// | 8 | v length | omitted |
/// | 12 | v file, v offset, v length, 4 CRC-32 | in a response file |
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply<'a> {
    None,
    Inline(&'a [u8]),
    Omitted { len: u64 },
    Far(Far),
}

/// Where a large response lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Far {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) crc: u32,
}

const DONE: u8 = 1;
const RELEASED: u8 = 2;
const TOMBSTONE: u8 = 3;
const MARK: u8 = 4;
const BEGIN: u8 = 5;
const LOG_START: u8 = 6;

const REFUSAL: u8 = 1;
const FINGERPRINT: u8 = 2;
const REPLY_INLINE: u8 = 4;
const REPLY_OMITTED: u8 = 8;
const REPLY_FAR: u8 = 12;
const SEQUENCE: u8 = 1;
const SETTER: u8 = 2;
const MARK_HIDES: u8 = 4;
const NOTE: u8 = 4;
const ABORTED: u8 = 8;
const LEASE_EXPIRED: u8 = 16;
const RELEASED_HIDES: u8 = 32;

/// Bytes before the key.
const HEADER: usize = 4;

/// More than any record takes beside its key, fingerprint, setter, note and response.
pub(crate) const RECORD_OVERHEAD: usize = 80;

/// The full key of an encoded record; empty if the bytes are too short to be one.
pub(crate) fn key_of(record: &[u8]) -> &[u8] {
    let len = record.get(2..HEADER).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    record.get(HEADER..HEADER + len).unwrap_or_default()
}

impl<'a> StoredRecord<'a> {
    /// Appends the encoding. The key is at most 65,535 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flags) = self.tag();
        let key_len = u16::try_from(self.key.len()).expect("key lengths are checked against the limit");
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(&self.purge_at.0.to_le_bytes());
        match self.body {
            Body::Done(done) => {
                put_varint(out, nanos(self.purge_at.since(done.expires_at)));
                put_varint(out, nanos(done.expires_at.since(done.completed_at)));
                put_varint(out, nanos(done.completed_at.since(done.claimed_at)));
                put_varint(out, done.attempt.into());
                put_optional(out, done.fingerprint);
                done.reply.encode(out);
            }
            Body::Released(released) => {
                put_varint(out, nanos(self.purge_at.since(released.expires_at)));
                put_varint(out, nanos(released.expires_at.since(released.given_up_at)));
                put_varint(out, released.attempt.into());
                put_optional(out, released.note);
            }
            Body::Tombstone { forgotten_at } => out.extend_from_slice(&forgotten_at.0.to_le_bytes()),
            Body::Mark(mark) => {
                put_varint(out, nanos(self.purge_at.since(mark.expires_at)));
                out.extend_from_slice(&mark.applied_at.0.to_le_bytes());
                put_varint(out, timestamp_bits(mark.timestamp));
                put_optional(out, mark.setter);
            }
            Body::Begin(begin) => {
                out.extend_from_slice(&begin.claimed_at.0.to_le_bytes());
                put_varint(out, nanos(begin.window));
                put_varint(out, begin.attempt.into());
                put_optional(out, begin.fingerprint);
                put_optional(out, begin.note);
            }
            Body::LogStart { segment, last_seq } => {
                out.extend_from_slice(&segment.to_le_bytes());
                out.extend_from_slice(&last_seq.to_le_bytes());
            }
        }
    }

    /// The encoding on its own.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.key.len() + RECORD_OVERHEAD);
        self.encode(&mut out);
        out
    }

    fn tag(&self) -> (u8, u8) {
        let fingerprint_flag =
            |fingerprint: Option<&[u8]>| if fingerprint.is_some() { FINGERPRINT } else { 0 };
        let note_flag = |note: Option<&[u8]>| if note.is_some() { NOTE } else { 0 };
        match self.body {
            Body::Done(done) => {
                let refusal = if done.refusal { REFUSAL } else { 0 };
                (DONE, refusal | fingerprint_flag(done.fingerprint) | done.reply.flags())
            }
            Body::Released(released) => {
                let cause = match released.cause {
                    Cause::Orphaned => 0,
                    Cause::Aborted => ABORTED,
                    Cause::LeaseExpired => LEASE_EXPIRED,
                };
                let hides = if released.hides { RELEASED_HIDES } else { 0 };
                (RELEASED, cause | hides | note_flag(released.note))
            }
            Body::Tombstone { .. } => (TOMBSTONE, 0),
            Body::Mark(mark) => {
                let sequence = if mark.timestamp.as_sequence().is_some() { SEQUENCE } else { 0 };
                let hides = if mark.hides { MARK_HIDES } else { 0 };
                (MARK, sequence | hides | if mark.setter.is_some() { SETTER } else { 0 })
            }
            Body::Begin(begin) => (BEGIN, fingerprint_flag(begin.fingerprint) | note_flag(begin.note)),
            Body::LogStart { .. } => (LOG_START, 0),
        }
    }

    /// Reads one record that fills `bytes`; `None` if they are not one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (kind, flags) = (reader.u8()?, reader.u8()?);
        let key_len = reader.u16()?;
        let key = reader.take(key_len.into())?;
        let purge_at = Time(reader.u64()?);
        let body = match kind {
            DONE if flags & !(REFUSAL | FINGERPRINT | REPLY_FAR) == 0 => {
                let expires_at = earlier(purge_at, reader.varint()?)?;
                let completed_at = earlier(expires_at, reader.varint()?)?;
                let claimed_at = earlier(completed_at, reader.varint()?)?;
                Body::Done(Done {
                    claimed_at,
                    completed_at,
                    expires_at,
                    attempt: attempt(&mut reader)?,
                    refusal: flags & REFUSAL != 0,
                    fingerprint: optional(&mut reader, flags & FINGERPRINT != 0)?,
                    reply: Reply::decode(&mut reader, flags & REPLY_FAR)?,
                })
            }
            RELEASED if flags & !(NOTE | ABORTED | LEASE_EXPIRED | RELEASED_HIDES) == 0 => {
                let expires_at = earlier(purge_at, reader.varint()?)?;
                Body::Released(Released {
                    given_up_at: earlier(expires_at, reader.varint()?)?,
                    expires_at,
                    attempt: attempt(&mut reader)?,
                    cause: match flags & (ABORTED | LEASE_EXPIRED) {
                        0 => Cause::Orphaned,
                        ABORTED => Cause::Aborted,
                        LEASE_EXPIRED => Cause::LeaseExpired,
                        _ => return None,
                    },
                    hides: flags & RELEASED_HIDES != 0,
                    note: optional(&mut reader, flags & NOTE != 0)?,
                })
            }
            TOMBSTONE if flags == 0 => Body::Tombstone { forgotten_at: Time(reader.u64()?) },
            MARK if flags & !(SEQUENCE | SETTER | MARK_HIDES) == 0 => Body::Mark(Mark {
                expires_at: earlier(purge_at, reader.varint()?)?,
                applied_at: Time(reader.u64()?),
                timestamp: timestamp_from_bits(reader.varint()?, flags & SEQUENCE != 0),
                hides: flags & MARK_HIDES != 0,
                setter: optional(&mut reader, flags & SETTER != 0)?,
            }),
            BEGIN if flags & !(FINGERPRINT | NOTE) == 0 => Body::Begin(Begin {
                claimed_at: Time(reader.u64()?),
                window: Duration::from_nanos(reader.varint()?),
                attempt: attempt(&mut reader)?,
                fingerprint: optional(&mut reader, flags & FINGERPRINT != 0)?,
                note: optional(&mut reader, flags & NOTE != 0)?,
            }),
            LOG_START if flags == 0 => Body::LogStart { segment: reader.u64()?, last_seq: reader.u64()? },
            _ => return None,
        };
        reader.is_empty().then_some(Self { key, purge_at, body })
    }

    /// The latest moment in the record that has already been when it was written; a store's time
    /// never starts before it.
    pub(crate) fn written_at(&self) -> Time {
        match self.body {
            Body::Done(done) => done.completed_at,
            Body::Mark(mark) => mark.applied_at,
            Body::Begin(begin) => begin.claimed_at,
            Body::Released(released) => released.given_up_at,
            Body::Tombstone { forgotten_at } => forgotten_at,
            Body::LogStart { .. } => Time(0),
        }
    }
}

impl<'a> Reply<'a> {
    fn flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Inline(_) => REPLY_INLINE,
            Self::Omitted { .. } => REPLY_OMITTED,
            Self::Far(_) => REPLY_FAR,
        }
    }

    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Inline(bytes) => put_bytes(out, bytes),
            Self::Omitted { len } => put_varint(out, len),
            Self::Far(far) => {
                put_varint(out, far.file);
                put_varint(out, far.offset);
                put_varint(out, far.len);
                out.extend_from_slice(&far.crc.to_le_bytes());
            }
        }
    }

    fn decode(reader: &mut Reader<'a>, flags: u8) -> Option<Self> {
        Some(match flags {
            REPLY_INLINE => Self::Inline(reader.bytes()?),
            REPLY_OMITTED => Self::Omitted { len: reader.varint()? },
            REPLY_FAR => Self::Far(Far {
                file: reader.varint()?,
                offset: reader.varint()?,
                len: reader.varint()?,
                crc: reader.u32()?,
            }),
            _ => Self::None,
        })
    }
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        put_bytes(out, bytes);
    }
}

/// The outer `None` is a failure to decode, the inner one a field that is not there.
#[expect(clippy::option_option, reason = "absent and undecodable differ")]
fn optional<'a>(reader: &mut Reader<'a>, present: bool) -> Option<Option<&'a [u8]>> {
    if present { reader.bytes().map(Some) } else { Some(None) }
}

fn attempt(reader: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(reader.varint()?).ok()
}

fn earlier(time: Time, by: u64) -> Option<Time> {
    time.0.checked_sub(by).map(Time)
}

/// A number as it is, a time in zigzag: small magnitudes take few bytes.
fn timestamp_bits(timestamp: Timestamp) -> u64 {
    match (timestamp.as_sequence(), timestamp.as_micros()) {
        (Some(number), _) => number,
        (None, Some(micros)) => ((micros << 1) ^ (micros >> 63)).cast_unsigned(),
        (None, None) => 0,
    }
}

fn timestamp_from_bits(bits: u64, sequence: bool) -> Timestamp {
    if sequence {
        Timestamp::sequence(bits)
    } else {
        Timestamp::from_micros((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn round_trip(record: &StoredRecord<'_>) {
        let bytes = record.to_bytes();
        assert_eq!(StoredRecord::decode(&bytes), Some(*record));
        assert_eq!(key_of(&bytes), record.key);
        for len in 0..bytes.len() {
            assert_ne!(StoredRecord::decode(&bytes[..len]), Some(*record), "cut at {len}");
        }
    }

    proptest! {
        #[test]
        fn records_come_back(
            key in vec(any::<u8>(), 0..80),
            blob in option::of(vec(any::<u8>(), 0..70)),
            claimed in 0..=u64::MAX / 4,
            (running, window, shadow) in (0..=u64::MAX / 8, 0..=u64::MAX / 8, 0..=u64::MAX / 8),
            attempt: u32,
            (refusal, number, micros) in (any::<bool>(), any::<u64>(), any::<i64>()),
        ) {
            let (claimed_at, completed_at) = (Time(claimed), Time(claimed + running));
            let expires_at = Time(completed_at.0 + window);
            let purge_at = Time(expires_at.0 + shadow);
            let (key, blob) = (&key[..], blob.as_deref());
            let replies = [
                Reply::None,
                Reply::Inline(key),
                Reply::Omitted { len: number },
                Reply::Far(Far { file: number, offset: claimed, len: window, crc: attempt }),
            ];
            for reply in replies {
                let done = Done { claimed_at, completed_at, expires_at, attempt, refusal, fingerprint: blob, reply };
                round_trip(&StoredRecord { key, purge_at, body: Body::Done(done) });
            }
            for cause in [Cause::Orphaned, Cause::Aborted, Cause::LeaseExpired] {
                let given_up_at = completed_at;
                let released = Released { given_up_at, expires_at, attempt, cause, hides: refusal, note: blob };
                round_trip(&StoredRecord { key, purge_at, body: Body::Released(released) });
            }
            for timestamp in [Timestamp::sequence(number), Timestamp::from_micros(micros)] {
                let mark = Mark { timestamp, applied_at: claimed_at, expires_at, hides: refusal, setter: blob };
                let body = Body::Mark(mark);
                round_trip(&StoredRecord { key, purge_at: Time::NEVER, body });
                round_trip(&StoredRecord { key, purge_at, body });
            }
            let window = Duration::from_nanos(window);
            let begin = Begin { claimed_at, window, attempt, fingerprint: blob, note: blob };
            round_trip(&StoredRecord { key, purge_at, body: Body::Begin(begin) });
            round_trip(&StoredRecord { key, purge_at, body: Body::Tombstone { forgotten_at: claimed_at } });
            let body = Body::LogStart { segment: number, last_seq: claimed };
            round_trip(&StoredRecord { key, purge_at, body });
        }

        /// Of every kind, with any flags: random bytes alone are hardly ever a record.
        #[test]
        fn bytes_that_decode_are_the_one_encoding_of_their_record(
            (kind, flags) in (0..8_u8, any::<u8>()),
            key in vec(any::<u8>(), 0..4),
            purge_at: u64,
            rest in vec(prop_oneof![Just(0), Just(1), Just(0x80), any::<u8>()], 0..40),
        ) {
            let mut bytes = vec![kind, flags & 0x3f, u8::try_from(key.len()).unwrap(), 0];
            bytes.extend_from_slice(&key);
            bytes.extend_from_slice(&purge_at.to_le_bytes());
            for len in 0..rest.len() {
                let bytes = [&bytes, &rest[..len]].concat();
                if let Some(record) = StoredRecord::decode(&bytes) {
                    prop_assert_eq!(record.to_bytes(), &bytes[..]);
                    prop_assert_eq!(key_of(&bytes), &key[..]);
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = StoredRecord::decode(&bytes);
            let _ = key_of(&bytes);
        }
    }

    #[test]
    fn an_unknown_kind_or_flag_is_refused() {
        let body = Body::Tombstone { forgotten_at: Time(1) };
        let record = StoredRecord { key: b"k", purge_at: Time(1), body };
        for (place, value) in [(0, 0), (0, 7), (1, 1)] {
            let mut bytes = record.to_bytes();
            bytes[place] = value;
            assert_eq!(StoredRecord::decode(&bytes), None);
        }
    }
}
