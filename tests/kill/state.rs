//! What may be true of one key, and which answers agree with it.

use crate::facts::{Found, Grant, Intent, Micros, Note, Previous, Reply, Span, Why};
use crate::words;

/// The parent reads the wall clock, the store counts on from its own reading: so far may the two be
/// apart when something expires.
const TOLERANCE: Micros = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    None,
    Asked,
    /// Its entity went to another event. A flush that saw it has ended it; without one it is an orphan.
    Overtaken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    Held { attempt: u32, note: Option<Note>, lease: Lease, process: u32, since: Span },
    Done { attempt: u32, reply: Reply, refusal: bool, completed: Span },
    Free { attempt: u32, why: Why, note: Option<Note>, since: Span },
}

/// Whose state it is, and who looks at it when.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub id: &'a str,
    pub process: u32,
    pub span: Span,
}

impl Look<'_> {
    fn window(&self) -> Micros {
        u64::try_from(words::window(self.id).as_micros()).expect("a short time")
    }

    /// Whether what began in `since` may have ended a window later.
    fn may_be_over(&self, since: Span) -> bool {
        self.span.told + TOLERANCE >= since.asked + self.window()
    }

    fn is_surely_over(&self, since: Span) -> bool {
        self.span.asked > since.told + self.window() + TOLERANCE
    }
}

/// The reply as a record shows it.
pub fn shown(id: &str, number: u32) -> Reply {
    if words::reply(id, number).len() > words::MAX_RESPONSE {
        Reply::Omitted(number)
    } else {
        Reply::Whole(number)
    }
}

impl State {
    /// The attempts that may be granted now, and what each is told of the one before.
    pub fn successors(&self, look: Look) -> Vec<(u32, Option<Previous>)> {
        let first = (1, None);
        match *self {
            Self::Absent => vec![first],
            Self::Done { completed, .. } => {
                if look.may_be_over(completed) {
                    vec![first]
                } else {
                    Vec::new()
                }
            }
            Self::Held { attempt, note, lease, process, since } => {
                let after = |why| (attempt + 1, Some(Previous { why, attempt, note }));
                let is_dead = process != look.process;
                let mut next = Vec::new();
                if is_dead {
                    next.push(after(Why::Orphaned));
                    if look.may_be_over(since) {
                        next.push(first);
                    }
                }
                if lease == Lease::Overtaken || (lease == Lease::Asked && !is_dead) {
                    next.push(after(Why::LeaseExpired));
                }
                next
            }
            Self::Free { attempt, why, note, since } => {
                let mut next = Vec::new();
                // An orphan's window begins when a later process finds it.
                if why == Why::Orphaned || !look.is_surely_over(since) {
                    next.push((attempt + 1, Some(Previous { why, attempt, note })));
                }
                if look.may_be_over(since) {
                    next.push(first);
                }
                next
            }
        }
    }

    pub fn admits_grant(&self, grant: &Grant, look: Look) -> bool {
        self.successors(look).contains(&(grant.attempt, grant.previous))
    }

    pub fn admits_claim(&self, attempt: u32, look: Look) -> bool {
        self.successors(look).iter().any(|&(next, _)| next == attempt)
    }

    pub fn admits_found(&self, found: &Found, look: Look) -> bool {
        let Self::Done { attempt, reply, refusal, completed } = *self else { return false };
        let expires = found.completed + look.window();
        (attempt, reply, refusal) == (found.attempt, found.reply, found.refusal)
            && found.completed + TOLERANCE >= completed.asked
            && found.completed <= completed.told + TOLERANCE
            && found.expires.abs_diff(expires) <= 2
            && look.span.asked < found.expires + TOLERANCE
    }

    pub fn admits_missing(&self, look: Look) -> bool {
        match self {
            Self::Done { completed, .. } => look.may_be_over(*completed),
            Self::Absent | Self::Held { .. } | Self::Free { .. } => true,
        }
    }

    pub fn admits_done(&self, look: Look) -> bool {
        matches!(self, Self::Done { completed, .. } if !look.is_surely_over(*completed))
    }

    pub fn is_held(&self, look: Look) -> bool {
        matches!(self, Self::Held { process, .. } if *process == look.process)
    }

    pub fn granted(grant: &Grant, lease: Lease, look: Look) -> Self {
        let note = grant.previous.and_then(|previous| previous.note);
        Self::Held { attempt: grant.attempt, note, lease, process: look.process, since: look.span }
    }

    /// What it becomes if `intent` came to pass in the time of `look`.
    pub fn after(&self, intent: Intent, look: Look) -> Vec<Self> {
        let since = look.span;
        match (intent, self) {
            (Intent::Claim { reply }, _) => {
                let reply = if reply { shown(look.id, 0) } else { Reply::None };
                let next = self.successors(look).into_iter();
                next.map(|(attempt, _)| Self::Done { attempt, reply, refusal: false, completed: since })
                    .collect()
            }
            (Intent::Begin { leased }, _) => {
                let lease = if leased { Lease::Asked } else { Lease::None };
                let process = look.process;
                let next = self.successors(look).into_iter();
                next.map(|(attempt, previous)| {
                    let note = previous.and_then(|previous| previous.note);
                    Self::Held { attempt, note, lease, process, since }
                })
                .collect()
            }
            (Intent::Drop, _) => {
                let done = self.after(Intent::Claim { reply: false }, look);
                let next = self.successors(look).into_iter();
                let taken_back = next.map(|(attempt, previous)| {
                    let note = previous.and_then(|previous| previous.note);
                    Self::Free { attempt, why: Why::Aborted, note, since }
                });
                taken_back.chain(done).collect()
            }
            (Intent::Settle { attempt, reply, refusal }, Self::Held { .. }) => {
                let reply = if reply { shown(look.id, attempt) } else { Reply::None };
                vec![Self::Done { attempt, reply, refusal, completed: since }]
            }
            (Intent::Note { number }, &Self::Held { attempt, lease, process, since, .. }) => {
                vec![Self::Held { attempt, note: Some((attempt, number)), lease, process, since }]
            }
            (Intent::Abort, &Self::Held { attempt, note, .. }) => {
                vec![Self::Free { attempt, why: Why::Aborted, note, since }]
            }
            (Intent::Overtake, &Self::Held { attempt, note, process, since, .. }) => {
                vec![Self::Held { attempt, note, lease: Lease::Overtaken, process, since }]
            }
            (Intent::Forget, _) => vec![Self::Absent],
            (Intent::Settle { .. } | Intent::Note { .. } | Intent::Abort | Intent::Overtake, _) => Vec::new(),
        }
    }
}
