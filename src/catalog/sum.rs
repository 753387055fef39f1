//! A sum over all rows of the catalog, because the database checks its pages only after a crash.
//!
//! It is the XOR of one hash a row, so that a commit changes it by the rows that it changes.

use std::collections::BTreeMap;

use super::{Contents, Edit, FileKind, Listed, Meta};
use crate::key::KeyHasher;
use crate::span::Span;

/// What identifies a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row<'a> {
    Meta(&'a str),
    Scope(&'a str),
    Bucket(u64),
    File(u64),
    Segment(u32),
}

type Value = [u64; 6];

impl Row<'_> {
    /// The hash of a row with this value; nothing for a row that is not there.
    fn hash(&self, value: Option<Value>) -> u64 {
        let Some(value) = value else { return 0 };
        let (table, key) = match self {
            Self::Meta(name) => (0, name.as_bytes().to_vec()),
            Self::Scope(name) => (1, name.as_bytes().to_vec()),
            Self::Bucket(id) => (2, id.to_le_bytes().to_vec()),
            Self::File(id) => (3, id.to_le_bytes().to_vec()),
            Self::Segment(id) => (4, id.to_le_bytes().to_vec()),
        };
        let mut bytes = vec![table];
        for word in value {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&key);
        KeyHasher::new(0).hash(&bytes)
    }
}

fn of_file(listed: &Listed) -> Value {
    let kind = match listed.kind {
        FileKind::Run => 0,
        FileKind::Responses => 1,
    };
    let Span { first, last } = listed.written;
    [kind, listed.bucket, listed.bytes, listed.records, first.0, last.0]
}

const fn of_number(number: u64) -> Value {
    [number, 0, 0, 0, 0, 0]
}

impl Edit {
    fn row(&self) -> (Row<'_>, Option<Value>) {
        match self {
            Self::Meta(meta, value) => (Row::Meta(meta.name()), Some(of_number(*value))),
            Self::Scope(name, number) => (Row::Scope(name), Some(of_number((*number).into()))),
            Self::Bucket { id, end } => (Row::Bucket(*id), Some(of_number(*end))),
            Self::DropBucket(id) => (Row::Bucket(*id), None),
            Self::File(id, listed) => (Row::File(*id), Some(of_file(listed))),
            Self::DropFile(id) => (Row::File(*id), None),
            Self::Segment { file_id, ordinal, epoch } => {
                (Row::Segment(*file_id), Some([*ordinal, *epoch, 0, 0, 0, 0]))
            }
            Self::DropSegment(id) => (Row::Segment(*id), None),
        }
    }
}

impl Contents {
    fn value(&self, row: &Row<'_>) -> Option<Value> {
        match row {
            Row::Meta(name) => self.meta.get(name).copied().map(of_number),
            Row::Scope(name) => self.scopes.get(*name).map(|&number| of_number(number.into())),
            Row::Bucket(id) => self.buckets.get(id).copied().map(of_number),
            Row::File(id) => self.files.get(id).map(of_file),
            Row::Segment(id) => self.segments.get(id).map(|&(ordinal, epoch)| [ordinal, epoch, 0, 0, 0, 0]),
        }
    }

    /// The sum over all rows but its own.
    pub(super) fn sum(&self) -> u64 {
        let names = self.meta.keys().filter(|name| **name != Meta::Sum.name());
        let rows = names
            .map(|name| Row::Meta(name))
            .chain(self.scopes.keys().map(|name| Row::Scope(name)))
            .chain(self.buckets.keys().map(|&id| Row::Bucket(id)))
            .chain(self.files.keys().map(|&id| Row::File(id)))
            .chain(self.segments.keys().map(|&id| Row::Segment(id)));
        rows.fold(0, |sum, row| sum ^ row.hash(self.value(&row)))
    }

    /// The sum once `edits` have been made.
    pub(super) fn sum_after(&self, edits: &[Edit]) -> u64 {
        let mut changed = BTreeMap::new();
        let mut sum = self.meta(Meta::Sum);
        for edit in edits {
            let (row, value) = edit.row();
            let before = changed.get(&row).copied().unwrap_or_else(|| row.hash(self.value(&row)));
            let after = row.hash(value);
            sum ^= before ^ after;
            changed.insert(row, after);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_counts_and_a_commit_keeps_the_sum() {
        let listed = Listed { kind: FileKind::Run, bucket: 4, bytes: 100, records: 3, written: Span::EMPTY };
        let edits = [
            Edit::Meta(Meta::Seed, 7),
            Edit::Meta(Meta::Seed, 8),
            Edit::Scope("stripe".into(), 1),
            Edit::Bucket { id: 4, end: 9 },
            Edit::File(7, listed),
            Edit::Segment { file_id: 1, ordinal: 5, epoch: 6 },
            Edit::Bucket { id: 5, end: 9 },
            Edit::DropBucket(5),
        ];
        let mut contents = Contents::default();
        for count in 0..=edits.len() {
            let (made, _) = edits.split_at(count);
            let sum = Contents::default().sum_after(made);
            contents = Contents::default();
            for edit in made {
                contents.apply(edit);
            }
            assert_eq!(sum, contents.sum(), "{count}");
        }
        contents.apply(&Edit::Meta(Meta::Sum, contents.sum()));
        for other in [
            Edit::Meta(Meta::Seed, 9),
            Edit::Scope("stripe".into(), 2),
            Edit::Scope("stripf".into(), 1),
            Edit::DropBucket(4),
            Edit::File(7, Listed { bytes: 101, ..listed }),
            Edit::Segment { file_id: 1, ordinal: 0, epoch: 6 },
        ] {
            let mut changed = contents.clone();
            changed.apply(&other);
            assert_ne!(changed.sum(), changed.meta(Meta::Sum), "{other:?}");
        }
    }
}
