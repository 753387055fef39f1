//! A segment read as a whole, and the frames in it.

use std::io;
use std::ops::Range;

use super::frame::{FRAME_ALIGN, Frame};
use super::segment::{FRAMES_AT, Segment};
use crate::disk;
use crate::error::{Error, Result};
use crate::record::{Body, StoredRecord};
use crate::sabotage::{self, Break};

/// How far a segment's frames count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    /// A recovery found the log to end here.
    Until(u64),
    /// A recovery found nothing of the log here.
    Unused,
}

/// A whole segment in memory.
pub(super) struct Image {
    pub(super) segment: Segment,
    pub(super) bytes: Vec<u8>,
}

impl Image {
    pub(super) fn read(segment: Segment) -> Result<Self> {
        let len = usize::try_from(segment.size)
            .map_err(|_| Error::corrupt(&segment.path, 0, "the file is larger than memory can hold"))?;
        let mut bytes = vec![0; len];
        disk::read_exact_at(&*segment.file, &mut bytes, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::corrupt(&segment.path, 0, "the file is cut short"),
            _ => Error::io(&segment.path, error),
        })?;
        Ok(Self { segment, bytes })
    }

    pub(super) fn frame(&self, offset: usize) -> Option<Frame<'_>> {
        Frame::read(self.bytes.get(offset..)?, self.segment.epoch)
    }

    pub(super) fn corrupt(&self, offset: usize, what: &'static str) -> Error {
        Error::corrupt(&self.segment.path, offset as u64, what)
    }

    /// The end of the log before this segment, if its first frame is a log start.
    pub(super) fn log_start(&self) -> Option<(u64, u64)> {
        let frame = self.frame(FRAMES_AT)?;
        let record = StoredRecord::decode(frame.records().next()??)?;
        match record.body {
            Body::LogStart { segment, last_seq } => Some((segment, last_seq)),
            _ => None,
        }
    }

    /// The run of good frames from the start whose numbers are dense.
    pub(super) fn frames(&self) -> impl Iterator<Item = (usize, Frame<'_>)> {
        let mut offset = FRAMES_AT;
        let mut next = None;
        std::iter::from_fn(move || {
            let frame = self.frame(offset).filter(|frame| next.is_none_or(|next| frame.seq == next))?;
            next = Some(frame.seq + 1);
            let at = offset;
            offset += frame.len;
            Some((at, frame))
        })
    }

    pub(super) fn last_seq(&self, limit: Limit) -> Option<u64> {
        let last = self.frames().last()?.1.seq;
        match limit {
            Limit::None => Some(last),
            Limit::Until(limit) => Some(last.min(limit)),
            Limit::Unused => None,
        }
    }

    /// Visits the segment's part of the log; returns where it ends and the number that is next.
    pub(super) fn visit(
        &self,
        first: u64,
        limit: Limit,
        visit: &mut dyn FnMut(u64, StoredRecord<'_>, &[u8]),
    ) -> Result<(usize, u64)> {
        let (mut stop, mut next) = (FRAMES_AT, first);
        for (offset, frame) in self.frames() {
            if matches!(limit, Limit::Until(limit) if frame.seq > limit) {
                return Ok((stop, next));
            }
            for record in frame.records() {
                let Some((bytes, record)) =
                    record.and_then(|bytes| Some((bytes, StoredRecord::decode(bytes)?)))
                else {
                    return Err(self.corrupt(offset, "a frame with a good checksum holds no record"));
                };
                visit(frame.seq, record, bytes);
            }
            (stop, next) = (offset + frame.len, frame.seq + 1);
        }
        match limit {
            Limit::Until(limit) if next <= limit => {
                Err(self.corrupt(stop, "a frame is damaged that an earlier recovery read"))
            }
            _ => Ok((stop, next)),
        }
    }

    /// Fails if a good frame from `offset` on promises that the frame `next` was durable.
    pub(super) fn check_tail(&self, offset: usize, next: u64) -> Result<()> {
        let tail = Range { start: offset, end: self.bytes.len() };
        for place in tail.step_by(FRAME_ALIGN) {
            let promised = self.frame(place).is_some_and(|frame| frame.durable >= next);
            if promised && !sabotage::is(Break::IgnoreDurableNumber) {
                return Err(self.corrupt(offset, "a frame is damaged that a later frame says was durable"));
            }
        }
        Ok(())
    }
}
