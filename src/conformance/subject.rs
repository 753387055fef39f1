//! What the suite asks of a store.

use std::time::{Duration, SystemTime};

use crate::options::Ties;
use crate::outcome::Response;
use crate::timestamp::Timestamp;

/// A store that the suite is run against.
///
/// A method with a default is only called where [`can`](Self::can) says that the store has the ability
/// it belongs to.
pub trait Subject: Sized + Send + Sync {
    /// A claim in progress.
    type Running: Send;

    /// Opens a new, empty store.
    fn open(setup: &Setup) -> Self;

    /// Whether the store has an ability. One that it does not have is no fault; scenarios that need
    /// it are passed over.
    fn can(ability: Ability) -> bool;

    /// An event arrives, and its work begins if it is new.
    fn begin(&self, event: &Event) -> Answer<Self::Running>;

    /// The work ends. An error says why the store refused that; nothing may have changed then.
    ///
    /// # Errors
    ///
    /// What the store said.
    fn end(&self, running: Self::Running, end: End) -> Result<(), String>;

    /// An event arrives and is done at once: [`begin`](Self::begin) and [`end`](Self::end), unless
    /// the store can do both in one step.
    fn claim(&self, event: &Event, response: Option<&[u8]>) -> Answer<()> {
        self.begin(event).and_then(|running| {
            match self.end(running, End::Complete(response.map(<[u8]>::to_vec))) {
                Ok(()) => Answer::New(()),
                Err(problem) => Answer::Error(problem),
            }
        })
    }

    /// Time passes.
    fn advance(&self, by: Duration);

    /// The process dies, with these claims in progress, and the store is opened again: what was not
    /// durable is gone, and no handler ends.
    fn crash(&mut self, running: Vec<Self::Running>);

    /// The store is closed in order, is down for so long, and is opened again.
    fn restart(&mut self, down: Duration) {
        self.crash(Vec::new());
        self.advance(down);
    }

    /// Removes what has expired, if the store does that at all.
    fn collect(&self) {}

    /// What the attempt knows of the ones before. With [`Ability::Attempts`].
    fn attempt(&self, _running: &Self::Running) -> Attempt {
        unreachable!("the store does not count attempts")
    }

    /// Keeps a note with the claim. With [`Ability::Notes`].
    ///
    /// # Errors
    ///
    /// What the store said: the claim is another owner's by now.
    fn note(&self, _running: &Self::Running, _note: &[u8]) -> Result<(), String> {
        unreachable!("the store keeps no notes")
    }

    /// Starts the lease anew. With [`Ability::Leases`].
    ///
    /// # Errors
    ///
    /// What the store said: the claim is another owner's by now.
    fn renew(&self, _running: &Self::Running) -> Result<(), String> {
        unreachable!("the store has no leases")
    }

    /// Events arrive together and are done at once; an answer for each, in their order. With
    /// [`Ability::Batches`].
    fn claim_all(&self, _events: &[Event]) -> Vec<Answer<()>> {
        unreachable!("the store takes no batches")
    }

    /// Whether an event is known as done. With [`Ability::Lookups`].
    fn contains(&self, _source: &str, _id: &[u8]) -> bool {
        unreachable!("the store cannot be looked into")
    }

    /// Frees a completed id; whether there was one. With [`Ability::Forget`].
    fn forget(&self, _source: &str, _id: &[u8]) -> bool {
        unreachable!("the store does not forget on purpose")
    }

    /// The wall clock is set to another time, and no time passes. With [`Ability::SteadyTime`], or
    /// [`Ability::ClockSteps`].
    fn step_wall(&self, _seconds: i64) {
        unreachable!("the store's wall clock cannot be set")
    }

    /// Bytes that the store takes. With [`Ability::Size`].
    fn size(&self) -> u64 {
        unreachable!("the store's size cannot be told")
    }

    /// Whether a second opening of the same store is refused. With [`Ability::Exclusive`].
    fn refuses_a_second_owner(&self) -> bool {
        unreachable!("the store may be opened by many")
    }

    /// From now on writes fail, or work again. With [`Ability::FailingDisk`].
    fn break_disk(&self, _broken: bool) {
        unreachable!("the store's disk does not fail on demand")
    }

    /// From now on there is no more room, or there is again. With [`Ability::FullDisk`].
    fn fill_disk(&self, _full: bool) {
        unreachable!("the store's disk does not fill up on demand")
    }
}

/// What not every store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ability {
    /// Two claims can be in progress at a time, and a copy of a running event is told so.
    InProgress,
    /// An attempt knows its number, and what became of the one before.
    Attempts,
    /// A running claim keeps a note for the attempt after it.
    Notes,
    /// A claim may have a lease, after which another may take over.
    Leases,
    /// A final "no" is kept, and told apart from a completion.
    Refusals,
    /// Fingerprints tell two events with one id apart.
    Fingerprints,
    /// The response is kept, and given to every duplicate.
    Responses,
    /// Keys expire.
    Windows,
    /// An event may have a window of its own.
    EventWindows,
    /// Older events of an entity are stale.
    Order,
    /// Stale events are told apart from duplicates.
    StaleIsTold,
    /// Ties between timestamps can be refused.
    RejectTies,
    /// A limit for dates in the future.
    MaxAhead,
    /// Several events can be claimed in one call.
    Batches,
    /// Whether an id is known can be asked without a claim.
    Lookups,
    /// An operator can free a completed id.
    Forget,
    /// Time passes by a clock that nobody sets: a wall clock set ahead expires nothing.
    SteadyTime,
    /// A wall clock that is set back revives nothing.
    ClockSteps,
    /// What a period in which the store is down takes from windows can be limited.
    DowntimePauses,
    /// What was acknowledged survives a crash.
    Durable,
    /// The store can say how large it is.
    Size,
    /// A second owner is refused.
    Exclusive,
    /// The suite can make its disk fail.
    FailingDisk,
    /// The suite can fill its disk up.
    FullDisk,
}

/// How a scenario wants its store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// What the wall clock shows at first.
    pub now: SystemTime,
    /// How long a completed key is kept.
    pub window: Duration,
    /// Whether an event may be as old as the last one of its entity.
    pub ties: Ties,
    /// How far ahead of the clock a timestamp may be.
    pub max_ahead: Option<Duration>,
    /// The longest response that is kept, in bytes.
    pub max_response_len: usize,
    /// How much one period in which the store is down may count for, at most; `None` for all of it.
    pub downtime_at_most: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_268_800),
            window: Duration::from_secs(24 * 3600),
            ties: Ties::Accept,
            max_ahead: None,
            max_response_len: 256 << 10,
            downtime_at_most: None,
        }
    }
}

/// A delivery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Who sent it.
    pub source: String,
    /// Its id, which a copy of it has, too.
    pub id: Vec<u8>,
    /// What tells it from another event under the same id.
    pub fingerprint: Option<Vec<u8>>,
    /// What it is about, and when that changed.
    pub order: Option<(Vec<u8>, Timestamp)>,
    /// How long it is kept once it is done.
    pub window: Option<Duration>,
    /// After how long another attempt may take over.
    pub lease: Option<Duration>,
}

impl Event {
    /// An event with no more than a source and an id.
    pub fn new(source: impl Into<String>, id: impl AsRef<[u8]>) -> Self {
        Self {
            source: source.into(),
            id: id.as_ref().to_vec(),
            fingerprint: None,
            order: None,
            window: None,
            lease: None,
        }
    }

    pub(super) fn fingerprint(self, bytes: &str) -> Self {
        Self { fingerprint: Some(bytes.into()), ..self }
    }

    pub(super) fn order(self, entity: &str, seconds: i64) -> Self {
        Self { order: Some((entity.into(), Timestamp::from_secs(seconds))), ..self }
    }

    pub(super) fn window(self, length: Duration) -> Self {
        Self { window: Some(length), ..self }
    }

    pub(super) fn lease(self, length: Duration) -> Self {
        Self { lease: Some(length), ..self }
    }
}

/// What a store says to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// Do the work.
    New(R),
    /// Done before. The default where the store keeps nothing of it.
    Duplicate(Done),
    /// Running, or another event of its entity is.
    InProgress,
    /// Another event under the same id.
    Mismatch,
    /// Older than what was applied.
    Stale,
    /// No verdict.
    Error(String),
}

impl<R> Answer<R> {
    /// What comes of a new event; every other answer stays as it is.
    pub fn and_then<T>(self, new: impl FnOnce(R) -> Answer<T>) -> Answer<T> {
        match self {
            Self::New(running) => new(running),
            Self::Duplicate(done) => Answer::Duplicate(done),
            Self::InProgress => Answer::InProgress,
            Self::Mismatch => Answer::Mismatch,
            Self::Stale => Answer::Stale,
            Self::Error(problem) => Answer::Error(problem),
        }
    }
}

/// What is kept of a completed event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The response.
    pub response: Reply,
    /// Whether it was a final "no".
    pub refusal: bool,
}

/// A response that was kept, or was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// There was none.
    #[default]
    None,
    /// These bytes.
    Stored(Vec<u8>),
    /// It was too long; its length in bytes.
    Omitted(u64),
}

impl From<Response<'_>> for Reply {
    fn from(response: Response<'_>) -> Self {
        match response {
            Response::None => Self::None,
            Response::Stored(bytes) => Self::Stored(bytes.to_vec()),
            Response::Omitted { len } => Self::Omitted(len),
        }
    }
}

/// How work ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is done, with this response.
    Complete(Option<Vec<u8>>),
    /// The answer is "no", for good.
    Refuse(Vec<u8>),
    /// It failed for now.
    Abort,
    /// Nobody ends it: an early return, a cancelled future.
    Drop,
    /// The handler panics.
    Panic,
}

/// What an attempt knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// What became of the one before.
    pub previous: Option<crate::guard::Cause>,
    /// The note that it left.
    pub note: Option<Vec<u8>>,
}
