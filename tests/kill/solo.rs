//! A key that one worker at a time speaks of: its lines come in order, so all is known of it, but
//! for what the kill cut off.

use crate::facts::{Intent, Span, Word};
use crate::state::{Lease, Look, State};

/// A state, and the line by which it was in the log; 0 if it was durable then.
#[derive(Debug)]
struct Step {
    state: State,
    line: u64,
}

#[derive(Debug)]
pub struct Solo {
    /// The last one is true while the process lives; after a kill an earlier one may be, unless
    /// something that came later was durable. After a check one is left.
    steps: Vec<Step>,
    /// What was said to be tried, and in which line.
    intent: Option<(Intent, Span, u64)>,
}

impl Default for Solo {
    fn default() -> Self {
        Self::one_of(vec![State::Absent])
    }
}

impl Solo {
    pub fn one_of(states: Vec<State>) -> Self {
        let steps = states.into_iter().map(|state| Step { state, line: 0 }).collect();
        Self { steps, intent: None }
    }

    fn last(&self) -> &State {
        &self.steps.last().expect("something is always true").state
    }

    fn be(&mut self, state: State) {
        self.steps = vec![Step { state, line: 0 }];
    }

    /// Takes in what a living process says in line `line`. The line before which everything is
    /// durable now, or what is wrong.
    pub fn hear(&mut self, word: &Word, look: Look, line: u64) -> Result<u64, String> {
        let intent = match word {
            &Word::Try(intent) => {
                self.intent = Some((intent, look.span, line));
                return Ok(0);
            }
            _ => self.intent.take(),
        };
        let last = self.last();
        let agrees = match (word, intent) {
            (Word::Claimed { attempt, .. }, Some((Intent::Claim { .. }, ..))) => {
                last.admits_claim(*attempt, look)
            }
            (Word::Granted(grant), Some((Intent::Begin { .. }, ..))) => last.admits_grant(grant, look),
            (Word::Found(found), _) => last.admits_found(found, look),
            (Word::Busy, _) => last.is_held(look),
            (Word::Forgot { was_done: true }, _) => last.admits_done(look),
            (Word::Missing | Word::Forgot { was_done: false }, _) => last.admits_missing(look),
            (Word::Did { attempt }, Some(_)) => {
                matches!(last, State::Held { attempt: held, .. } if held == attempt)
            }
            (Word::Fenced { attempt }, _) => match last {
                State::Held { attempt: held, lease, .. } => held > attempt || *lease == Lease::Overtaken,
                State::Done { attempt: held, .. } | State::Free { attempt: held, .. } => held > attempt,
                State::Absent => false,
            },
            (Word::Overtaken, Some((Intent::Overtake, ..))) => {
                matches!(last, State::Held { lease: Lease::Asked, .. })
            }
            _ => false,
        };
        if !agrees {
            return Err(format!("told {word:?} {:?} after {intent:?}, known: {last:?}", look.span));
        }
        Ok(self.take_in(word, intent, look, line))
    }

    fn take_in(&mut self, word: &Word, intent: Option<(Intent, Span, u64)>, look: Look, line: u64) -> u64 {
        let mut next = match (word, intent) {
            (Word::Granted(grant), Some((Intent::Begin { leased }, ..))) => {
                State::granted(grant, if leased { Lease::Asked } else { Lease::None }, look)
            }
            (Word::Claimed { .. } | Word::Did { .. } | Word::Forgot { .. }, Some((intent, span, _))) => {
                let look = Look { span: Span { asked: span.asked, told: look.span.told }, ..look };
                self.last().after(intent, look).pop().expect("what happened was possible")
            }
            (Word::Overtaken, _) => {
                if let Some(Step { state: State::Held { lease, .. }, .. }) = self.steps.last_mut() {
                    *lease = Lease::Overtaken;
                }
                return 0;
            }
            _ => return 0,
        };
        if let (Word::Claimed { attempt: said, completed: at, .. }, State::Done { attempt, completed, .. }) =
            (word, &mut next)
        {
            *attempt = *said;
            *completed = Span { asked: *at, told: *at };
        }
        let is_durable = match word {
            Word::Claimed { durable, .. } => *durable,
            Word::Granted(_) => false,
            _ => !matches!(intent, Some((Intent::Abort, ..))),
        };
        if is_durable {
            self.be(next);
            let wrote = !matches!(word, Word::Forgot { was_done: false });
            return if wrote { intent.map_or(0, |(_, _, asked)| asked) } else { 0 };
        }
        self.steps.push(Step { state: next, line });
        0
    }

    /// The process is dead; what it said before line `durable` is on the disk.
    pub fn end(&mut self, durable: u64, id: &str, process: u32, span: Span) {
        let sure = self.steps.iter().rposition(|step| step.line < durable).unwrap_or(0);
        self.steps.drain(..sure);
        if let Some((intent, asked, _)) = self.intent.take() {
            let look = Look { id, process, span: Span { asked: asked.asked, told: span.told } };
            let may = self.last().after(intent, look).into_iter();
            self.steps.extend(may.map(|state| Step { state, line: 0 }));
        }
    }

    /// Keeps what agrees with an answer of a reopened store.
    pub fn narrow(&mut self, what: &str, agrees: impl Fn(&State) -> bool) -> Result<(), String> {
        if self.steps.iter().any(|step| agrees(&step.state)) {
            self.steps.retain(|step| agrees(&step.state));
            return Ok(());
        }
        Err(format!(
            "told {what}, known: {:?}",
            self.steps.iter().map(|step| &step.state).collect::<Vec<_>>()
        ))
    }

    pub fn may_be(&self, state: impl Fn(&State) -> bool) -> bool {
        self.steps.iter().any(|step| state(&step.state))
    }

    /// What a check has found is all that is true now.
    pub fn settle_on(&mut self, state: State) {
        self.be(state);
    }

    /// A check has done this to the one state there is.
    pub fn happen(&mut self, intent: Intent, look: Look) {
        if let Some(state) = self.last().after(intent, look).pop() {
            self.be(state);
        }
    }
}
