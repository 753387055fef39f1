//! Asks a reopened store for all that the history knows.

use crate::common::Dice;
use crate::facts::{Found, Grant, Intent, Micros, Span, now};
use crate::history::{History, Tale, Tokens};
use crate::solo::Solo;
use crate::state::{Lease, Look, State};
use crate::words;
use oncedb::{Guard, Outcome, Record, Scope};

impl History {
    /// The store says of every key and entity what may be true; what was open before is settled by
    /// this, so that a second check demands the same again. Of the keys that had two checks, one in
    /// `sample` is looked at once more.
    pub fn check(&mut self, scope: &Scope, sample: u64, dice: &mut Dice) {
        self.next_process();
        let mut wrong = Vec::new();
        for (id, key) in &mut self.keys {
            if key.checks >= 2 && dice.below(sample) > 0 {
                continue;
            }
            key.checks += 1;
            let Tale::Solo(solo) = &mut key.tale else {
                wrong.push(format!("{id} was not buried"));
                continue;
            };
            let asker = Asker { scope, id, process: self.process };
            if let Err(what) = asker.check(solo, &mut self.tokens) {
                wrong.push(format!("after {} processes, {id}: {what}", self.process));
            }
        }
        self.marks.check(scope, &mut wrong);
        self.all_wrong(wrong);
    }
}

struct Asker<'a> {
    scope: &'a Scope,
    id: &'a str,
    process: u32,
}

impl Asker<'_> {
    fn look(&self, asked: Micros) -> Look<'_> {
        Look { id: self.id, process: self.process, span: Span::since(asked) }
    }

    fn check(&self, solo: &mut Solo, tokens: &mut Tokens) -> Result<(), String> {
        let asked = now();
        if let Some(record) = self.scope.get(self.id).map_err(|error| error.to_string())? {
            self.found("get", solo, asked, &record)?;
        } else {
            let look = self.look(asked);
            solo.narrow("missing by get", |state| state.admits_missing(look))?;
        }
        let asked = now();
        let contained = self.scope.contains(self.id).map_err(|error| error.to_string())?;
        let look = self.look(asked);
        solo.narrow(&format!("contained: {contained}"), |state| {
            if contained { state.admits_done(look) } else { state.admits_missing(look) }
        })?;

        if words::fingerprint(self.id).is_some() && solo.may_be(|state| matches!(state, State::Done { .. })) {
            let asked = now();
            let other = self.scope.request(self.id).window(words::window(self.id)).fingerprint("another");
            match other.begin().map_err(|error| error.to_string())? {
                Outcome::Mismatch(record) => self.found("begin of another event", solo, asked, &record)?,
                Outcome::New(guard) => {
                    self.granted(solo, asked, &guard, tokens)?;
                    self.abort(solo, guard)?;
                }
                told => return Err(format!("another fingerprint is {told:?}")),
            }
        }
        let asked = now();
        match words::request(self.scope, self.id).begin().map_err(|error| error.to_string())? {
            Outcome::Duplicate(record) => self.found("begin", solo, asked, &record),
            Outcome::New(guard) => {
                self.granted(solo, asked, &guard, tokens)?;
                self.abort(solo, guard)
            }
            told => Err(format!("a begin is {told:?}")),
        }
    }

    fn found(&self, by: &str, solo: &mut Solo, asked: Micros, record: &Record) -> Result<(), String> {
        let found = Found::of(self.id, record)?;
        let look = self.look(asked);
        solo.narrow(&format!("{found:?} by {by} {:?}", look.span), |state| state.admits_found(&found, look))?;
        let completed = Span { asked: found.completed, told: found.completed };
        let Found { attempt, reply, refusal, .. } = found;
        solo.settle_on(State::Done { attempt, reply, refusal, completed });
        Ok(())
    }

    fn granted(
        &self,
        solo: &mut Solo,
        asked: Micros,
        guard: &Guard,
        tokens: &mut Tokens,
    ) -> Result<(), String> {
        let grant = Grant::of(self.id, guard)?;
        tokens.give(grant.token)?;
        let look = self.look(asked);
        solo.narrow(&format!("{grant:?} {:?}", look.span), |state| state.admits_grant(&grant, look))?;
        solo.settle_on(State::granted(&grant, Lease::None, look));
        Ok(())
    }

    fn abort(&self, solo: &mut Solo, guard: Guard) -> Result<(), String> {
        let asked = now();
        guard.abort().map_err(|error| error.to_string())?;
        solo.happen(Intent::Abort, self.look(asked));
        Ok(())
    }
}
