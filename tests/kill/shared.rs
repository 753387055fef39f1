//! A key that two workers speak of: their lines may come in any order, so only what holds in every
//! order is demanded.

use crate::facts::{Grant, Intent, Reply, Span, Why, Word};
use crate::state::{Lease, State, shown};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Shared {
    /// Each was granted an attempt, or may have been.
    begins: u32,
    /// The line in which each attempt was said to be granted.
    granted: BTreeMap<u32, u64>,
    settling: BTreeMap<u32, (Reply, bool)>,
    done: Option<u32>,
    fenced: Vec<u32>,
    first: Option<Span>,
}

impl Shared {
    pub fn hear(&mut self, id: &str, word: &Word, span: Span, line: u64) -> Result<(), String> {
        let first = self.first.get_or_insert(span).asked;
        match word {
            Word::Try(Intent::Begin { .. }) => self.begins += 1,
            Word::Try(Intent::Claim { .. }) => {
                self.settling.insert(1, (Reply::None, false));
            }
            &Word::Try(Intent::Settle { attempt, reply, refusal }) => {
                let reply = if reply { shown(id, attempt) } else { Reply::None };
                self.settling.insert(attempt, (reply, refusal));
            }
            Word::Claimed { attempt, .. } => {
                self.grant(&Grant { attempt: *attempt, token: 0, previous: None }, line)?;
                self.finish(*attempt)?;
            }
            Word::Granted(grant) => self.grant(grant, line)?,
            Word::Did { attempt } => self.finish(*attempt)?,
            Word::Found(found) => {
                self.begins = self.begins.saturating_sub(1);
                let expected = self.settling.get(&found.attempt);
                if expected != Some(&(found.reply, found.refusal)) || found.completed + 100_000 < first {
                    return Err(format!("{found:?} is nobody's: {self:?}"));
                }
                self.finish(found.attempt)?;
            }
            Word::Fenced { attempt } => self.fenced.push(*attempt),
            Word::Busy => self.begins = self.begins.saturating_sub(1),
            other => return Err(format!("two workers never do {other:?}")),
        }
        Ok(())
    }

    /// Each attempt goes to one worker, none is granted over a completion.
    fn grant(&mut self, grant: &Grant, line: u64) -> Result<(), String> {
        let &Grant { attempt, previous, .. } = grant;
        let again = self.granted.insert(attempt, line).is_some();
        let follows = match previous {
            None => attempt == 1,
            Some(previous) => previous.attempt + 1 == attempt && previous.why == Why::LeaseExpired,
        };
        let over_done = self.done.is_some_and(|done| done < attempt);
        if again || !follows || over_done {
            return Err(format!("attempt {attempt} was new, before: {previous:?}, {self:?}"));
        }
        Ok(())
    }

    fn finish(&mut self, attempt: u32) -> Result<(), String> {
        let other = self.done.replace(attempt).is_some_and(|done| done != attempt);
        let later = self.granted.range(attempt + 1..).next().is_some();
        if other || later || self.fenced.contains(&attempt) {
            return Err(format!("attempt {attempt} is done, and {self:?}"));
        }
        Ok(())
    }

    /// All that may be true once the process is dead.
    pub fn end(&self, durable: u64, process: u32, span: Span) -> Result<Vec<State>, String> {
        let last = self.granted.keys().next_back().copied().unwrap_or(0);
        let all_heard = self.granted.len() == self.begins as usize;
        if self.fenced.iter().any(|&attempt| attempt >= last && all_heard) {
            return Err(format!("nobody took over: {self:?}"));
        }
        let completed = Span { asked: self.first.map_or(0, |first| first.asked), told: span.told };
        let settled = self.settling.iter().filter(|(attempt, _)| match self.done {
            Some(done) => **attempt == done,
            None => !self.fenced.contains(attempt),
        });
        let done =
            settled.map(|(&attempt, &(reply, refusal))| State::Done { attempt, reply, refusal, completed });
        let mut may: Vec<_> = done.collect();
        if self.done.is_none() {
            let sure = self.granted.iter().filter(|(_, line)| **line < durable).map(|(attempt, _)| *attempt);
            let sure = sure.max().unwrap_or(0);
            may.extend((sure == 0).then_some(State::Absent));
            may.extend((sure.max(1)..=self.begins).map(|attempt| State::Held {
                attempt,
                note: None,
                lease: Lease::Asked,
                process,
                since: completed,
            }));
        }
        Ok(may)
    }
}
