//! Response files and references to what is in them.

use arbitrary::Arbitrary;

use crate::records::file_header;

#[derive(Arbitrary, Clone, Debug)]
pub struct Plan {
    pub bytes: Vec<u8>,
    pub sound_header: bool,
    /// The length in the catalog is off by this.
    pub listed: i8,
    pub places: Vec<Place>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Place {
    pub other_file: bool,
    pub offset: Number,
    pub len: Number,
    /// The sum is off by this.
    pub crc: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Small(u8),
    Short(u16),
    Any(u64),
}

impl Number {
    fn value(self) -> u64 {
        match self {
            Self::Small(number) => number.into(),
            Self::Short(number) => number.into(),
            Self::Any(number) => number,
        }
    }
}

pub struct Built {
    pub bytes: Vec<u8>,
    pub listed: u64,
    pub places: Vec<oncedb::fuzzing::Place>,
}

impl Plan {
    #[must_use]
    pub fn build(&self) -> Built {
        let mut bytes = self.bytes.clone();
        if self.sound_header {
            bytes.splice(..0, file_header(*b"oncersp\n"));
        }
        let place = |place: &Place| {
            let (offset, len) = (place.offset.value(), place.len.value());
            let file = if place.other_file { 6 } else { oncedb::fuzzing::FILE_ID };
            let crc = range(&bytes, offset, len).map_or(0, crc32fast::hash);
            (file, offset, len, crc ^ u32::from(place.crc))
        };
        let places = self.places.iter().map(place).collect();
        let listed = (bytes.len() as u64).saturating_add_signed(self.listed.into());
        Built { bytes, listed, places }
    }
}

/// A part of a file.
#[must_use]
pub fn range(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}
