//! What the owner of a claim does with it, and those who wait for its end.

use crate::common::block_on;
use crate::names::{LONGEST_NOTE, note_bytes, response_bytes};
use crate::ops::{Door, Ending};
use crate::run::{Checked, Held, Run, Waiting, polled_once, reply};
use crate::seen::{Seen, done, settled};
use crate::verdict::{End, fenced};
use crate::world::{Moment, World};
use oncedb::{Busy, Guard};
use std::time::Duration;

impl Run {
    fn place(&self, pick: u8) -> Option<usize> {
        usize::from(pick).checked_rem(self.guards.len())
    }

    pub fn settle(&mut self, door: Door, pick: u8, ending: &Ending) -> Checked {
        let Some(place) = self.place(pick) else { return Ok(()) };
        let Held { guard, number, synced } = self.guards.remove(place);
        let response = |len: u16| response_bytes(len.into());
        let end = match ending {
            Ending::Complete(len) => End::Complete(reply(*len)),
            Ending::Refuse(len) => End::Refuse(reply(Some(*len))),
            Ending::Abort | Ending::Drop => End::Abort,
        };
        if let Ending::Drop = ending {
            drop(guard);
            self.settle_unanswered(number, &end);
            return Ok(());
        }
        let answer = if door == Door::Blocking {
            Some(match *ending {
                Ending::Complete(None) => guard.complete(),
                Ending::Complete(Some(len)) => guard.complete_with(response(len)),
                Ending::Refuse(len) => guard.refuse(response(len)),
                Ending::Abort | Ending::Drop => guard.abort(),
            })
        } else {
            let future = match *ending {
                Ending::Complete(None) => guard.complete_async(),
                Ending::Complete(Some(len)) => guard.complete_with_async(response(len)),
                Ending::Refuse(len) => guard.refuse_async(response(len)),
                Ending::Abort | Ending::Drop => guard.abort_async(),
            };
            match door {
                Door::Blocking | Door::Async => Some(block_on(future)),
                Door::PolledOnce => polled_once(future),
                Door::NeverPolled => {
                    drop(future);
                    self.settle_unanswered(number, &End::Abort);
                    return Ok(());
                }
            }
        };
        if let Some(answer) = answer {
            return self.check_settled(number, synced, &end, &done(&answer));
        }
        self.settle_unanswered(number, &end);
        Ok(())
    }

    fn settle_unanswered(&mut self, number: usize, end: &End) {
        self.model.change(|mut world, at| {
            world.settle(at, number, end);
            vec![world]
        });
    }

    fn check_settled(&mut self, number: usize, synced: bool, end: &End, seen: &Seen) -> Checked {
        self.model.expect(&[], seen, |world, at| vec![world.settle(at, number, end)])?;
        if *seen == Seen::Done && synced && *end != End::Abort {
            self.model.durable();
        }
        Ok(())
    }

    pub fn settle_all(&mut self, door: Door, picks: &[u8], response: Option<u16>) -> Checked {
        let mut held = Vec::new();
        for &pick in picks {
            if let Some(place) = self.place(pick) {
                held.push(self.guards.remove(place));
            }
        }
        let about: Vec<(usize, bool)> = held.iter().map(|held| (held.number, held.synced)).collect();
        let end = End::Complete(reply(response));
        let guards = held.into_iter().map(|held| held.guard);
        let store = self.store().clone();
        let answers = if door == Door::Blocking {
            Some(match response {
                None => store.complete_all(guards),
                Some(len) => store.complete_all_with(with_response(guards, len)),
            })
        } else {
            let future = match response {
                None => store.complete_all_async(guards),
                Some(len) => store.complete_all_with_async(with_response(guards, len)),
            };
            match door {
                Door::Blocking | Door::Async => Some(block_on(future)),
                Door::PolledOnce => polled_once(future),
                Door::NeverPolled => {
                    drop(future);
                    for (number, _) in about {
                        self.settle_unanswered(number, &End::Abort);
                    }
                    return Ok(());
                }
            }
        };
        match answers {
            None => {
                for (number, _) in about {
                    self.settle_unanswered(number, &end);
                }
            }
            Some(Err(error)) => return Err(format!("complete_all: {error:?}")),
            Some(Ok(answers)) if answers.len() != about.len() => {
                return Err(format!("{} answers to {} guards", answers.len(), about.len()));
            }
            Some(Ok(answers)) => {
                for ((number, synced), answer) in about.into_iter().zip(answers) {
                    self.check_settled(number, synced, &end, &done(&answer))?;
                }
            }
        }
        Ok(())
    }

    pub fn renew(&mut self, pick: u8) -> Checked {
        let Some(place) = self.place(pick) else { return Ok(()) };
        let Held { guard, number, .. } = &self.guards[place];
        let seen = done(&guard.renew());
        self.model.expect(&[], &seen, |world, at| {
            let renew = |attempt: &mut crate::world::Attempt| {
                if let Some(lease) = attempt.lease {
                    attempt.lease_until = at.now + lease;
                }
            };
            vec![world.change(*number, renew)]
        })
    }

    pub fn note(&mut self, door: Door, pick: u8, note: u8) -> Checked {
        let Some(place) = self.place(pick) else { return Ok(()) };
        let Held { guard, number, .. } = &self.guards[place];
        let answer = match door {
            Door::Blocking => guard.note(note_bytes(note)),
            Door::Async | Door::PolledOnce => block_on(guard.note_async(note_bytes(note))),
            Door::NeverPolled => {
                drop(guard.note_async(note_bytes(note)));
                return Ok(());
            }
        };
        let seen = done(&answer);
        let keep =
            |world: &mut World, _: Moment| vec![world.change(*number, |attempt| attempt.note = Some(note))];
        self.model.expect(&[], &seen, keep)?;
        if seen == Seen::Done {
            self.model.durable();
        }
        Ok(())
    }

    pub fn long_note(&mut self, pick: u8) -> Checked {
        let Some(place) = self.place(pick) else { return Ok(()) };
        let Held { guard, number, .. } = &self.guards[place];
        let seen = done(&guard.note(vec![b'n'; LONGEST_NOTE + 1]));
        self.model.expect(&[], &seen, |world, _| {
            let mut answers = vec![Seen::Fails("NoteTooLong".to_owned())];
            if world.attempt(*number).is_none() {
                answers.push(fenced());
            }
            answers
        })
    }

    pub fn wait(&mut self, door: Door, pick: u8) -> Checked {
        let Some(place) = usize::from(pick).checked_rem(self.waits.len()) else { return Ok(()) };
        let waiting = &self.waits[place];
        let seen = match door {
            Door::Blocking => settled(waiting.running.wait(Duration::ZERO)),
            Door::Async | Door::PolledOnce => {
                polled_once(waiting.running.wait_async()).map_or(Seen::StillRunning, settled)
            }
            Door::NeverPolled => {
                drop(waiting.running.wait_async());
                return Ok(());
            }
        };
        let Waiting { ref running, number, synced, old } = *waiting;
        let busy = running.busy();
        let durable = self.model.is_durable();
        self.model.expect(&[], &seen, |world, at| {
            let completed = world.completed.get(&number);
            let mut answers = vec![match (world.attempt(number), completed) {
                (Some((_, attempt)), _) if attempt.is_held(at.now) => Seen::StillRunning,
                (None, Some((key, finished))) if busy == Busy::Id => {
                    Seen::Completed(finished.record(at, *key))
                }
                _ => Seen::Released,
            }];
            // It waits until no crash can take the completion back.
            if !durable && completed.is_some() {
                answers.push(Seen::StillRunning);
            }
            if old && completed.is_some() {
                // Begin again: that is right in any case.
                answers.push(Seen::Released);
            }
            answers
        })?;
        if synced && !old && matches!(seen, Seen::Completed(_)) {
            self.model.pin(&[], |world, _| world.completed.contains_key(&number));
        }
        Ok(())
    }
}

fn with_response(guards: impl Iterator<Item = Guard>, len: u16) -> Vec<(Guard, Vec<u8>)> {
    guards.map(|guard| (guard, response_bytes(len.into()))).collect()
}
