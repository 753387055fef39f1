//! Journals: built from a plan of segments and frames, or from bytes whose sums are made right.

use arbitrary::Arbitrary;
use oncedb::fuzzing::SegmentFile;

use crate::records::{Record, put_bytes};

pub const FRAMES_AT: usize = 512;
const FRAME_HEADER: usize = 32;

#[derive(Arbitrary, Clone, Debug)]
pub struct Plan {
    /// Numbers, promises and epochs are as the store would choose them, whatever the plan says.
    pub forced: bool,
    pub first: First,
    pub durable: Durable,
    pub segments: Vec<Segment>,
}

/// The number of the first frame; everything before it is released.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum First {
    One,
    Small(u8),
    At(u64),
}

/// What the catalog, or a frame, says is durable.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Durable {
    /// The frame before, less so many.
    Before(u8),
    Exactly(u64),
    /// So many after the frame before.
    Ahead(u8),
}

#[derive(Arbitrary, Clone, Debug)]
pub struct Segment {
    pub epoch: u64,
    /// Ordinals that are left out before this one's.
    pub gap: u8,
    pub origin: Origin,
    pub frames: Vec<Frame>,
    /// Bytes behind the frames.
    pub tail: u16,
}

/// What a header repeats from the catalog: era, released number, the clock's stamp.
pub type Origin = [u64; 4];

#[derive(Arbitrary, Clone, Debug)]
pub struct Frame {
    pub number: Number,
    pub durable: Durable,
    pub records: Vec<Record>,
    pub harm: Harm,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Next,
    Again,
    After(u8),
    Exactly(u64),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Harm {
    None,
    /// Of another use of the file.
    Epoch,
    /// A changed byte.
    Byte(u16, u8),
    /// Nothing was written from here in the frame on.
    Torn(u16),
    /// Left out, its place and all, as a number that was never written would be.
    Skipped,
}

/// A frame as it lies in a file.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub ordinal: u64,
    pub seq: u64,
    pub durable: u64,
    /// It reads well.
    pub sound: bool,
    pub first_in_segment: bool,
}

pub struct Built {
    pub files: Vec<SegmentFile>,
    pub frames: Vec<Placed>,
    /// Sequence number and bytes of all records, harmed or not.
    pub records: Vec<(u64, Vec<u8>)>,
    pub released: u64,
    pub durable: u64,
    /// A journal that the store could have written, but for bytes that were changed or not written.
    pub honest: bool,
    pub has_log_start: bool,
}

impl Durable {
    fn value(self, before: u64) -> u64 {
        match self {
            Self::Before(by) => before.saturating_sub(by.into()),
            Self::Exactly(number) => number,
            Self::Ahead(by) => before.saturating_add(by.into()),
        }
    }
}

impl Plan {
    #[must_use]
    pub fn build(&self) -> Built {
        let first = match self.first {
            First::One => 1,
            First::Small(number) => u64::from(number).max(1),
            First::At(number) => number.max(1),
        };
        let mut built = Built {
            files: Vec::new(),
            frames: Vec::new(),
            records: Vec::new(),
            released: first - 1,
            durable: first - 1,
            // Numbers do not come near their end.
            honest: first < 1 << 60,
            has_log_start: false,
        };
        let (mut next, mut ordinal) = (first, 0);
        let mut promised = first - 1;
        for segment in &self.segments {
            let mut segment = segment.clone();
            if self.forced {
                if segment.frames.is_empty() {
                    continue;
                }
                segment.epoch = segment.epoch.wrapping_mul(1_000).wrapping_add(ordinal);
            }
            ordinal += 1 + u64::from(segment.gap);
            let mut bytes = vec![0; FRAMES_AT];
            for (index, frame) in segment.frames.iter().enumerate() {
                let mut frame = frame.clone();
                if self.forced {
                    frame.force(index == 0, next, promised);
                }
                frame.place(&segment, index == 0, &mut next, &mut promised, ordinal, &mut bytes, &mut built);
            }
            // A segment that was never begun is the last one.
            built.honest &= !segment.frames.is_empty();
            bytes.resize(bytes.len() + usize::from(segment.tail), 0);
            let header = header(ordinal, segment.epoch, bytes.len() as u64, segment.origin);
            bytes[..FRAMES_AT].copy_from_slice(&header);
            built.files.push(SegmentFile { ordinal, epoch: segment.epoch, bytes });
        }
        built.durable = self.durable.value(next.saturating_sub(1));
        built.honest &= built.durable < next && built.durable >= built.released;
        let mut epochs: Vec<_> = built.files.iter().map(|file| file.epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        built.honest &= epochs.len() == built.files.len();
        built
    }
}

impl Frame {
    fn force(&mut self, first_in_segment: bool, next: u64, promised: u64) {
        self.number = Number::Next;
        let durable = match self.durable {
            _ if first_in_segment => next - 1,
            Durable::Exactly(_) => promised,
            durable => durable.value(next - 1).clamp(promised, next - 1),
        };
        self.durable = Durable::Exactly(durable);
        self.records.retain(|record| record.is_sound() && !matches!(record, Record::LogStart { .. }));
        if self.records.is_empty() {
            self.records.push(Record::Tombstone { key: vec![b'k'], purge_at: 1, forgotten_at: 1 });
        }
        if matches!(self.harm, Harm::Skipped) {
            self.harm = Harm::None;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one walk")]
    fn place(
        &self,
        segment: &Segment,
        first_in_segment: bool,
        next: &mut u64,
        promised: &mut u64,
        ordinal: u64,
        bytes: &mut Vec<u8>,
        built: &mut Built,
    ) {
        let seq = match self.number {
            Number::Next => *next,
            Number::Again => next.saturating_sub(1),
            Number::After(by) => next.saturating_add(by.into()),
            Number::Exactly(number) => number,
        };
        let durable = self.durable.value(seq.saturating_sub(1));
        built.honest &= seq == *next && durable < seq && durable >= *promised;
        built.honest &= !self.records.is_empty() && self.records.iter().all(Record::is_sound);
        // A segment is begun when the one before is durable.
        built.honest &= !first_in_segment || seq.checked_sub(1) == Some(durable);
        *promised = durable;
        *next = seq.saturating_add(1);
        if matches!(self.harm, Harm::Skipped) {
            built.honest = false;
            return;
        }
        let mut records = Vec::new();
        for record in &self.records {
            let record_bytes = record.to_bytes();
            put_bytes(&mut records, &record_bytes);
            built.records.push((seq, record_bytes));
            built.has_log_start |= matches!(record, Record::LogStart { .. });
        }
        // Raw bytes may be one, too.
        built.has_log_start |= self.records.iter().any(|record| matches!(record, Record::Raw(_)));
        let epoch = if matches!(self.harm, Harm::Epoch) { !segment.epoch } else { segment.epoch };
        let mut frame = frame(seq, durable, epoch, &records);
        // The last number of all is no frame's.
        let mut sound = !records.is_empty() && seq != u64::MAX && !matches!(self.harm, Harm::Epoch);
        match self.harm {
            Harm::Byte(place, change) => {
                let place = usize::from(place) % frame.len();
                frame[place] ^= change;
                sound &= change == 0;
            }
            Harm::Torn(place) => {
                let place = usize::from(place) % frame.len();
                sound &= frame[place..].iter().all(|&byte| byte == 0);
                frame[place..].fill(0);
            }
            Harm::None | Harm::Epoch | Harm::Skipped => {}
        }
        built.frames.push(Placed { ordinal, seq, durable, sound, first_in_segment });
        bytes.extend_from_slice(&frame);
    }
}

impl Built {
    /// What must be read of an honest journal without log starts: the last number, or `None` for
    /// damage.
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        let Some(harmed) = self.frames.iter().position(|frame| !frame.sound) else {
            return Some(self.frames.last().map_or(self.released, |frame| frame.seq));
        };
        let end = self.frames[harmed].seq - 1;
        let goes_on = |frame: &Placed| frame.sound && (frame.first_in_segment || frame.durable > end);
        let promised = self.durable > end || self.frames[harmed + 1..].iter().any(goes_on);
        (!promised).then_some(end)
    }
}

/// One frame, sealed.
#[must_use]
pub fn frame(seq: u64, durable: u64, epoch: u64, records: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_HEADER + records.len());
    bytes.extend_from_slice(&u32::try_from(records.len()).unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for number in [seq, durable, epoch] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(records);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    seal(&mut bytes);
    bytes
}

fn seal(frame: &mut [u8]) {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&frame[..4]);
    sum.update(&frame[8..]);
    frame[4..8].copy_from_slice(&sum.finalize().to_le_bytes());
}

/// The first sector of a segment.
#[must_use]
pub fn header(ordinal: u64, epoch: u64, len: u64, origin: Origin) -> [u8; FRAMES_AT] {
    let mut bytes = [0; FRAMES_AT];
    bytes[..8].copy_from_slice(b"ONCEJRNL");
    bytes[8] = 1;
    for (index, number) in [ordinal, epoch, len].into_iter().chain(origin).enumerate() {
        bytes[16 + index * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Makes frames of what could be some: one behind the other, each with its epoch and its sum.
pub fn repair(bytes: &mut [u8], epoch: u64) {
    let mut rest = bytes;
    while let Some(len) = rest.first_chunk::<4>() {
        let len = (FRAME_HEADER + u32::from_le_bytes(*len) as usize).next_multiple_of(8);
        let Some((frame, behind)) = rest.split_at_mut_checked(len) else { return };
        frame[24..32].copy_from_slice(&epoch.to_le_bytes());
        seal(frame);
        rest = behind;
    }
}
