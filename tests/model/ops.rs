//! Histories: what is done to a store.

use crate::names::When;
use std::fmt;

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Blocking,
    Async,
    /// The future is dropped after its first poll, unless it is ready.
    PolledOnce,
    /// The future is dropped before that.
    NeverPolled,
}

#[derive(Clone)]
pub struct Ask {
    pub scope: u8,
    pub id: u8,
    pub print: Option<u8>,
    pub order: Option<(u8, When)>,
    /// In seconds.
    pub window: Option<u16>,
    /// In milliseconds.
    #[expect(clippy::option_option, reason = "the scope's, or none, or one of its own")]
    pub lease: Option<Option<u16>>,
    /// `Sync`, or else an interval that no history lives to see the end of.
    pub sync: Option<bool>,
    pub response: Option<u16>,
}

#[derive(Clone, Debug)]
pub enum Ending {
    Complete(Option<u16>),
    Refuse(u16),
    Abort,
    Drop,
}

#[derive(Clone, Copy, Debug)]
pub enum Pass {
    Millis(u32),
    /// To a moment that something depends on, or a nanosecond before or after it.
    Exactly(u8, i8),
}

/// How an open store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    Close,
    CloseAsync,
    /// Every handle is dropped.
    Dropped,
    PowerCut,
    /// With another one right after the recovery.
    TwoPowerCuts,
}

/// What was wrong with a caller's input.
#[derive(Clone, Copy, Debug)]
pub enum Wrong {
    EmptyId,
    EmptyEntity,
    LongId,
    LongPrint,
    NoWindow,
    NoLease,
    NoInterval,
    EmptyInBatch,
    OtherOptions,
}

#[derive(Clone, Debug)]
pub enum Op {
    Claim(Door, Ask),
    Begin(Door, Ask),
    ClaimMany(Door, u8, Vec<u8>),
    ClaimRequests(Door, Vec<Ask>),
    BeginRequests(Door, Vec<Ask>),
    /// Guards are named by their place among those that are held, around and around.
    Settle(Door, u8, Ending),
    SettleAll(Door, Vec<u8>, Option<u16>),
    Renew(u8),
    Note(Door, u8, u8),
    LongNote(u8),
    Get(Door, u8, u8),
    Contains(u8, u8),
    Forget(Door, u8, u8),
    Advance(Door, u8, u8, When),
    LastApplied(u8, u8),
    ForgetMark(u8, u8),
    Wait(Door, u8),
    Fill(u8),
    Elapse(Pass),
    StepWall(i16),
    Maintain,
    Sync(Door),
    Reopen(Door),
    /// The store is shut, and opened after a time in seconds, during which the wall clock may step, by a
    /// deploy with other options perhaps.
    Restart {
        shut: Shut,
        away: u16,
        step: i16,
        deploy: u8,
    },
    Invalid(Wrong, u8),
}

#[derive(Clone)]
pub struct History {
    /// Decides what the disk keeps in a power cut.
    pub disk: u64,
    pub synced: bool,
    /// The most seconds for which the store may have been closed.
    pub pauses: Option<u16>,
    pub ops: Vec<Op>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disk, synced, pauses, ops } = self;
        writeln!(f, "disk {disk}, synced: {synced}, pauses: {pauses:?}")?;
        ops.iter().enumerate().try_for_each(|(step, op)| writeln!(f, "{step:4}  {op:?}"))
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.id)?;
        let mut option = |name: &str, value: Option<&dyn fmt::Debug>| match value {
            Some(value) => write!(f, " {name} {value:?}"),
            None => Ok(()),
        };
        option("print", self.print.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("order", self.order.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("window", self.window.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("lease", self.lease.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("sync", self.sync.as_ref().map(|value| value as &dyn fmt::Debug))?;
        option("response", self.response.as_ref().map(|value| value as &dyn fmt::Debug))
    }
}

impl Ask {
    /// Whether a scope can be asked it without a request.
    pub fn is_plain(&self) -> bool {
        let Self { print, order, window, lease, sync, .. } = self;
        print.is_none() && order.is_none() && window.is_none() && lease.is_none() && sync.is_none()
    }

    pub fn plain(scope: u8, id: u8) -> Self {
        let (print, order, window, lease, sync, response) = (None, None, None, None, None, None);
        Self { scope, id, print, order, window, lease, sync, response }
    }
}
