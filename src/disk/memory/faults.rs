//! What goes wrong, at which call.

use std::io;

/// A kind of call to a [`MemoryDisk`](super::MemoryDisk).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// Reading from a file, or its length.
    Read,
    /// Writing to a file.
    Write,
    /// Setting the length of a file.
    SetLen,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Creating a file.
    Create,
    /// Opening a file.
    Open,
    /// Removing a file.
    Remove,
    /// Listing a directory.
    List,
}

impl Call {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::SetLen,
        Self::Sync,
        Self::SyncDir,
        Self::Create,
        Self::Open,
        Self::Remove,
        Self::List,
    ];
}

/// What happens at a call of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The device fails (`EIO`). A write may have written a part; of what a sync was to make durable
    /// a part is lost, though reads still show it, and the next sync reports success.
    Io,
    /// There is no room (`ENOSPC`); of writes and syncs the same is true as for `Io`.
    NoSpace,
    /// A read or write moves only some of the bytes.
    Short,
    /// A read, write or sync is interrupted before it does anything (`EINTR`). From then on, if the
    /// fault lasts, every other call.
    Interrupted,
    /// The power goes, before the call has an effect or after it.
    PowerCut,
}

/// A fault to come, for [`MemoryDisk::inject`](super::MemoryDisk::inject).
///
/// ```
/// use oncedb::simulation::{Call, Fault, FaultKind, MemoryDisk};
///
/// let disk = MemoryDisk::new(1);
/// let store = oncedb::Store::options().disk(&disk).open("anywhere")?;
/// let stripe = store.scope("stripe")?;
/// disk.inject(Fault::new(FaultKind::Io).on(Call::Sync));
/// assert!(stripe.claim("evt_1").unwrap_err().is_outcome_unknown());
/// store.reopen()?;
/// assert!(stripe.claim("evt_2")?.is_new());
/// # Ok::<(), oncedb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Fault {
    kind: FaultKind,
    on: Option<Call>,
    /// Matching calls that still pass.
    skip: u64,
    lasting: bool,
}

impl Fault {
    /// At the next call of any kind that it can happen to, once.
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, on: None, skip: 0, lasting: false }
    }

    /// Only at calls of this kind.
    pub fn on(mut self, call: Call) -> Self {
        self.on = Some(call);
        self
    }

    /// After so many calls that pass.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// From then on, until [`MemoryDisk::heal`](super::MemoryDisk::heal).
    pub fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    fn can_happen_to(&self, call: Call) -> bool {
        let kind = match self.kind {
            FaultKind::Io | FaultKind::PowerCut => true,
            FaultKind::NoSpace => !matches!(call, Call::Read | Call::Open | Call::Remove | Call::List),
            FaultKind::Short => matches!(call, Call::Read | Call::Write),
            FaultKind::Interrupted => matches!(call, Call::Read | Call::Write | Call::Sync),
        };
        kind && self.on.is_none_or(|on| on == call)
    }
}

/// The faults to come, and how many calls there have been.
#[derive(Debug, Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
    calls: u64,
    injected: u64,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.waiting.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Faults that have happened.
    pub(super) fn injected(&self) -> u64 {
        self.injected
    }

    /// What happens at this call.
    pub(super) fn at(&mut self, call: Call) -> Option<FaultKind> {
        self.calls += 1;
        let mut due = None;
        for (index, fault) in
            self.waiting.iter_mut().enumerate().filter(|(_, fault)| fault.can_happen_to(call))
        {
            match fault.skip.checked_sub(1) {
                Some(left) => fault.skip = left,
                None => due = due.or(Some(index)),
            }
        }
        let index = due?;
        let fault = &mut self.waiting[index];
        let kind = fault.kind;
        match (fault.lasting, kind) {
            (false, _) => drop(self.waiting.remove(index)),
            (true, FaultKind::Interrupted) => fault.skip = 1,
            (true, _) => {}
        }
        self.injected += 1;
        Some(kind)
    }
}

impl FaultKind {
    /// The error of a call that this fails.
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::NoSpace => io::ErrorKind::StorageFull.into(),
            Self::Interrupted => io::ErrorKind::Interrupted.into(),
            Self::Io | Self::Short | Self::PowerCut => io::Error::other("the simulated device has failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_happens_at_the_call_it_was_meant_for_and_lasts_if_it_is_to() {
        let mut faults = Faults::default();
        faults.add(Fault::new(FaultKind::Io).on(Call::Sync).after(1));
        let calls = [Call::Sync, Call::Write, Call::Sync, Call::Sync];
        assert_eq!(calls.map(|call| faults.at(call)), [None, None, Some(FaultKind::Io), None]);
        faults.add(Fault::new(FaultKind::NoSpace).lasting());
        let calls = [Call::Read, Call::Write, Call::Create];
        assert_eq!(calls.map(|call| faults.at(call).is_some()), [false, true, true]);
        faults.clear();
        faults.add(Fault::new(FaultKind::Interrupted).lasting());
        assert_eq!([Call::Write; 4].map(|call| faults.at(call).is_some()), [true, false, true, false]);
        assert_eq!((faults.calls(), faults.injected()), (11, 5));
    }
}
