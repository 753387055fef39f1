//! The values of a ledger's rows: a record or a head, and a sum that ties it to its row.
//!
//! | value | bytes |
//! |---|---|
//! | head | 4 version, 8 latest time, 4 CRC-32 |
//! | id, mark | the record with an empty key, 4 CRC-32 |
//!
//! The sum is over the ledger's name, the row's kind and name, and the value before it. It is there
//! in the head of every version.

use crc32fast::Hasher;

use crate::clock::Time;
use crate::codec::Reader;
use crate::error::{Error, Result};
use crate::key::{KEY_PREFIX, Kind};
use crate::outcome::Shortened;
use crate::record::{Body, Reply, StoredRecord};

/// The version of this layout.
const VERSION: u32 = 1;

const SUM: usize = 4;

/// What a row is: its kind as it is stored.
pub(crate) const HEAD: u8 = 0;
pub(crate) const ID: u8 = 1;
pub(crate) const MARK: u8 = 2;

pub(crate) fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::Id => ID,
        Kind::Mark => MARK,
    }
}

pub(crate) fn kind_of(byte: u8) -> Option<Kind> {
    match byte {
        ID => Some(Kind::Id),
        MARK => Some(Kind::Mark),
        _ => None,
    }
}

/// Seals and opens the values of one ledger.
#[derive(Clone)]
pub(crate) struct Seal {
    ledger: Box<str>,
    /// Of the ledger's name.
    sum: Hasher,
}

impl Seal {
    pub(crate) fn new(ledger: &str) -> Self {
        let mut sum = Hasher::new();
        sum.update(ledger.as_bytes());
        Self { ledger: ledger.into(), sum }
    }

    pub(crate) fn ledger(&self) -> &str {
        &self.ledger
    }

    fn sum(&self, kind: u8, name: &[u8], value: &[u8]) -> [u8; SUM] {
        let mut sum = self.sum.clone();
        sum.update(&[kind]);
        sum.update(name);
        sum.update(value);
        sum.finalize().to_le_bytes()
    }

    fn unsealed<'a>(&self, kind: u8, name: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
        let (value, sum) = value.split_last_chunk::<SUM>()?;
        (*sum == self.sum(kind, name, value)).then_some(value)
    }

    pub(crate) fn head(&self, latest: Time) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        value.extend_from_slice(&latest.0.to_le_bytes());
        value.extend_from_slice(&self.sum(HEAD, b"", &value));
        value
    }

    /// The latest time in a head.
    pub(crate) fn open_head(&self, value: &[u8]) -> Result<Time> {
        let damaged = || self.damaged("the head", "it does not match its checksum");
        let mut reader = Reader::new(self.unsealed(HEAD, b"", value).ok_or_else(damaged)?);
        match reader.u32() {
            Some(VERSION) => {}
            Some(found) => return Err(Error::Version { found, supported: VERSION }),
            None => return Err(damaged()),
        }
        let latest = reader.u64().map(Time).filter(|_| reader.is_empty());
        latest.ok_or_else(|| self.damaged("the head", "it is not as long as a head is"))
    }

    /// The value of a row. Its key is left out: the row's own name says it.
    pub(crate) fn record(&self, kind: Kind, name: &[u8], expires_at: Time, body: Body<'_>) -> Vec<u8> {
        let mut value = StoredRecord { key: b"", purge_at: expires_at, body }.to_bytes();
        value.extend_from_slice(&self.sum(kind_byte(kind), name, &value));
        value
    }

    /// The record in a row's value.
    pub(crate) fn open<'a>(&self, kind: Kind, name: &[u8], value: &'a [u8]) -> Result<StoredRecord<'a>> {
        let damaged = |what| self.damaged(&row_name(kind_byte(kind), name), what);
        let value = self
            .unsealed(kind_byte(kind), name, value)
            .ok_or_else(|| damaged("it does not match its checksum"))?;
        let record = StoredRecord::decode(value).ok_or_else(|| damaged("it is no record"))?;
        let fits = match (kind, record.body) {
            (Kind::Id, Body::Done(done)) => !matches!(done.reply, Reply::Far(_)),
            (Kind::Id, Body::Tombstone { .. }) | (Kind::Mark, Body::Mark(_)) => true,
            _ => false,
        };
        if fits && record.key.is_empty() { Ok(record) } else { Err(damaged("it is another kind of record")) }
    }

    /// An error that names the row.
    pub(crate) fn damaged(&self, row: &str, what: &'static str) -> Error {
        Error::Damaged { ledger: self.ledger.clone(), row: row.into(), what }
    }
}

/// A row's name for people.
pub(crate) fn row_name(kind: u8, name: &[u8]) -> String {
    match kind {
        HEAD => "the head".to_owned(),
        ID => format!("the id {:?}", Shortened(name)),
        MARK => format!("the mark of {:?}", Shortened(name)),
        other => format!("a row of the unknown kind {other}"),
    }
}

/// When a row expires by its value, as far as its first bytes say.
pub(crate) fn expiry_of(value: &[u8]) -> Option<Time> {
    let mut reader = Reader::new(value);
    reader.take(4)?;
    reader.u64().map(Time)
}

/// The full key of a row's record, as records show it.
pub(crate) fn full_key(kind: Kind, name: &[u8]) -> Vec<u8> {
    let mut key = vec![0; KEY_PREFIX];
    key[0] = kind as u8;
    key.extend_from_slice(name);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Done;
    use proptest::prelude::*;

    fn done(reply: Reply<'_>) -> Body<'_> {
        Body::Done(Done {
            claimed_at: Time(1),
            completed_at: Time(1),
            expires_at: Time(9),
            attempt: 1,
            refusal: false,
            fingerprint: None,
            reply,
        })
    }

    #[test]
    fn a_value_opens_only_in_its_own_row_of_its_own_ledger() {
        let seal = Seal::new("stripe");
        let value = seal.record(Kind::Id, b"evt_1", Time(9), done(Reply::None));
        assert!(seal.open(Kind::Id, b"evt_1", &value).is_ok());
        assert_eq!(expiry_of(&value), Some(Time(9)));
        for (ledger, kind, name) in
            [("stripf", Kind::Id, "evt_1"), ("stripe", Kind::Mark, "evt_1"), ("stripe", Kind::Id, "evt_2")]
        {
            let error = Seal::new(ledger).open(kind, name.as_bytes(), &value).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn records_that_a_ledger_does_not_write_are_refused() {
        let seal = Seal::new("stripe");
        let far = Reply::Far(crate::record::Far { file: 1, offset: 2, len: 3, crc: 4 });
        let start = Body::LogStart { segment: 1, last_seq: 1 };
        for (kind, body) in [(Kind::Id, done(far)), (Kind::Mark, done(Reply::None)), (Kind::Id, start)] {
            let value = seal.record(kind, b"n", Time(9), body);
            assert!(seal.open(kind, b"n", &value).is_err());
        }
    }

    #[test]
    fn a_head_of_another_version_says_so_and_a_damaged_one_is_no_version() {
        let seal = Seal::new("");
        let head = seal.head(Time(77));
        assert_eq!(seal.open_head(&head).unwrap(), Time(77));
        let mut newer = 2_u32.to_le_bytes().to_vec();
        newer.extend_from_slice(b"whatever a later version has");
        newer.extend_from_slice(&seal.sum(HEAD, b"", &newer));
        assert!(matches!(seal.open_head(&newer), Err(Error::Version { found: 2, supported: 1 })));
        for place in 0..head.len() {
            let mut changed = head.clone();
            changed[place] ^= 1;
            assert!(matches!(seal.open_head(&changed), Err(Error::Damaged { .. })), "byte {place}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_values_never_panic(value: Vec<u8>, kind in 0..4_u8) {
            let seal = Seal::new("stripe");
            let _ = seal.open_head(&value);
            let _ = expiry_of(&value);
            if let Some(kind) = kind_of(kind) {
                prop_assert!(seal.open(kind, b"n", &value).is_err());
                // As if the sum were right.
                let sealed = [&value[..], &seal.sum(kind_byte(kind), b"n", &value)].concat();
                let _ = seal.open(kind, b"n", &sealed);
            }
        }
    }
}
