//! Keys: what a record is about, and the hash that finds it.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The name space a key lives in: an event's id, or an entity's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Id = 0,
    Mark = 1,
}

/// Bytes before the id or entity: the kind and the scope's number.
pub(crate) const KEY_PREFIX: usize = 1 + 4;

/// A full key and its hash.
///
/// | bytes | what |
/// |---|---|
/// | 0 | [`Kind`] |
/// | 1..5 | scope number, little-endian |
/// | 5.. | the id or the entity |
///
/// The scope is a fixed-width number, so no two (scope, id) pairs share a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) hash: u64,
    pub(crate) bytes: Box<[u8]>,
}

impl Key {
    pub(crate) fn new(hasher: &KeyHasher, kind: Kind, scope: u32, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(KEY_PREFIX + name.len());
        bytes.push(kind as u8);
        bytes.extend_from_slice(&scope.to_le_bytes());
        bytes.extend_from_slice(name);
        Self { hash: hasher.hash(&bytes), bytes: bytes.into_boxed_slice() }
    }

    /// The id or the entity.
    pub(crate) fn name(&self) -> &[u8] {
        name_of(&self.bytes)
    }
}

/// The id or the entity in a full key.
pub(crate) fn name_of(key: &[u8]) -> &[u8] {
    key.get(KEY_PREFIX..).unwrap_or_default()
}

/// The store's own seeded hash. Its values are on disk: run order and filters depend on them.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    secrets: RapidSecrets,
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher")
    }
}

impl KeyHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed) }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pairs_share_a_key() {
        let hasher = KeyHasher::new(7);
        let keys = [
            Key::new(&hasher, Kind::Id, 1, b"bc"),
            Key::new(&hasher, Kind::Mark, 1, b"bc"),
            Key::new(&hasher, Kind::Id, 2, b"bc"),
            Key::new(&hasher, Kind::Id, 1, b"\0bc"),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(keys.iter().skip(index + 1).all(|other| other.bytes != key.bytes));
        }
        assert_eq!(keys[0].name(), b"bc");
    }

    #[test]
    fn the_hash_is_the_documented_one() {
        // Its values are on disk: a change of the library must not change them.
        let hash = |seed, key: &[u8]| KeyHasher::new(seed).hash(key);
        let long = |prefix: &[u8], count| [prefix, &vec![b'x'; count]].concat();
        assert_eq!(hash(0, b"\0\x01\0\0\0evt_1"), 0x6ef6_0921_2aa0_356b);
        assert_eq!(hash(1, b"\0\x01\0\0\0evt_1"), 0x4009_e175_77bd_879d);
        assert_eq!(hash(7, &long(b"\0\x02\0\0\0", 40)), 0xaf55_a3c8_5fa8_659a);
        assert_eq!(hash(7, &long(b"\x01\x02\0\0\0", 300)), 0xbf40_6b96_a27e_f3de);
    }
}
