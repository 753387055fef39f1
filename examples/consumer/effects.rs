//! The work: a line in a file for each event, where a real consumer would book the amount.
//!
//! The file stands for an outside system: the store knows nothing of it, and it can be asked what
//! has been done.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::event::Event;
use crate::lines::{self, Lines};

pub struct Effects {
    path: PathBuf,
    lines: Lines,
    /// The ids that were there when the first dead attempt made us ask.
    before: Option<HashSet<String>>,
}

impl Effects {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), lines: Lines::open(path)?, before: None })
    }

    /// Does the work of many events: on disk when this returns.
    pub fn apply<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> io::Result<()> {
        self.lines.append(events)
    }

    /// Asks whether an earlier process did the work of this event.
    pub fn were_done_before(&mut self, id: &str) -> io::Result<bool> {
        let before = match self.before.take() {
            Some(before) => before,
            None => read(&self.path)?.into_iter().map(|event| event.id).collect(),
        };
        Ok(self.before.insert(before).contains(id))
    }
}

/// Every effect in the file, in the order of acting.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    lines::read(path)
}
