//! The store is flushed, synced, closed, cut off, and opened again.

use crate::claims::INTERVAL;
use crate::common::block_on;
use crate::names::{
    FIRST_FILLER, LONGEST_KEY, LONGEST_NOTE, LONGEST_RESPONSE, SCOPES, SECOND, STORE_WINDOW, scope_options,
};
use crate::ops::{Ask, Door, Ending, Shut};
use crate::run::{Checked, Live, Run};
use crate::seen::{At, Seen, done, settled};
use crate::verdict::End;
use crate::world::Moment;
use oncedb::{Downtime, Durability, Store};
use std::time::Duration;

/// Claimed once and kept for ever: by its record the store tells what time it takes it to be.
const PROBE: &str = "probe";
const FOR_EVER: Duration = Duration::from_secs(90 * 365 * 24 * 3600);

/// More than these are made fewer after a restart.
const MOST_WORLDS: usize = 12;

impl Run {
    pub fn first_open(&mut self) {
        self.open();
        let probe = self.store().scope(PROBE).unwrap().request(PROBE).window(FOR_EVER);
        assert!(probe.durability(Durability::Sync).claim().unwrap().is_new());
    }

    fn open(&mut self) {
        let options = Store::options()
            .disk(&self.disk)
            .clock(self.clock.clone())
            .memory_limit(1 << 20)
            .max_key_len(LONGEST_KEY)
            .max_response_len(LONGEST_RESPONSE)
            .max_note_len(LONGEST_NOTE)
            .window(Duration::from_nanos(STORE_WINDOW.unsigned_abs()))
            .durability(if self.synced { Durability::Sync } else { INTERVAL })
            .downtime(match self.pauses {
                Some(most) => Downtime::Pauses { at_most: Duration::from_nanos(most.unsigned_abs()) },
                None => Downtime::Counts,
            });
        let store = options.open("store").unwrap();
        let scope = |(number, name): (u8, &&str)| match scope_options(self.deploy, number) {
            Some(options) => store.scope_with(name, options).unwrap(),
            None => store.scope(name).unwrap(),
        };
        let scopes = (0..).zip(&SCOPES).map(scope).collect();
        self.live = Some(Live { store, scopes });
    }

    /// The store's time, as its answers show it.
    fn observed_now(&self) -> i64 {
        let record = self.store().scope(PROBE).unwrap().get(PROBE).unwrap().expect("it is kept for ever");
        let At(claimed_at) = At::of(record.claimed_at());
        self.model.at.wall - claimed_at
    }

    pub fn maintain(&mut self) -> Checked {
        self.store().maintain().map_err(|error| format!("{error:?}"))?;
        self.model.flush();
        Ok(())
    }

    pub fn sync(&mut self, door: Door) -> Checked {
        let answer = match door {
            Door::Blocking => self.store().sync(),
            Door::Async | Door::PolledOnce => block_on(self.store().sync_async()),
            Door::NeverPolled => {
                drop(self.store().sync_async());
                return Ok(());
            }
        };
        self.model.durable();
        answer.map_err(|error| format!("{error:?}"))
    }

    pub fn reopen(&mut self, door: Door) -> Checked {
        let answer = match door {
            Door::Blocking => self.store().reopen(),
            Door::Async | Door::PolledOnce => block_on(self.store().reopen_async()),
            Door::NeverPolled => {
                drop(self.store().reopen_async());
                return Ok(());
            }
        };
        answer.map_err(|error| format!("{error:?}"))?;
        let now = self.observed_now();
        if now != self.model.at.now {
            return Err(format!("the store's time is {:?} at {:?}", At(now), self.model.at));
        }
        let last = [self.model.at];
        self.recovered(false, &last, now);
        self.waits.iter_mut().for_each(|waiting| waiting.old = true);
        self.survey()
    }

    /// When a store may go on whose last stamp was this one.
    fn goes_on_at(&self, last: Moment) -> impl Iterator<Item = i64> {
        self.model.goes_on_at(last, self.pauses.unwrap_or(i64::MAX))
    }

    /// After a power cut the store goes on from the last time that it wrote down.
    fn times_after_a_power_cut(&self) -> (i64, i64) {
        let starts: Vec<i64> = self.model.readings.iter().flat_map(|&at| self.goes_on_at(at)).collect();
        let latest = self.model.readings.iter().map(|at| at.now).max().unwrap_or(0);
        (starts.iter().copied().min().unwrap_or(0), starts.into_iter().max().unwrap_or(0).max(latest))
    }

    pub fn restart(&mut self, shut: Shut, away: u16, step: i16, deploy: u8) -> Checked {
        match shut {
            Shut::Close | Shut::CloseAsync => self.close(shut)?,
            Shut::Dropped => self.drop_all(),
            Shut::PowerCut | Shut::TwoPowerCuts => self.cut_power()?,
        }
        let closed_at = self.model.at;
        let away = i64::from(away) * SECOND;
        self.clock.advance(Duration::from_nanos(away.unsigned_abs()));
        self.clock.step_wall(step.into());
        self.model.at.wall += away + i64::from(step) * SECOND;
        self.deploy = deploy;
        self.model.forget_completions();
        self.open();
        let now = self.observed_now();
        if let Shut::PowerCut | Shut::TwoPowerCuts = shut {
            self.check_recovery(now)?;
        } else {
            if !self.goes_on_at(closed_at).any(|at| at == now) {
                return Err(format!("the store's time is {:?}, closed at {closed_at:?}", At(now)));
            }
            self.model.opened(&[closed_at], now);
        }
        if shut == Shut::TwoPowerCuts {
            self.cut_power()?;
            self.open();
            self.check_recovery(self.observed_now())?;
        }
        self.survey()
    }

    fn check_recovery(&mut self, now: i64) -> Checked {
        let (least, most) = self.times_after_a_power_cut();
        if !(least..=most).contains(&now) {
            return Err(format!("the store's time is {:?}, not {:?} to {:?}", At(now), At(least), At(most)));
        }
        let readings = self.model.readings.clone();
        self.recovered(true, &readings, now);
        Ok(())
    }

    fn recovered(&mut self, power_cut: bool, last: &[Moment], now: i64) {
        self.model.recover(power_cut, now);
        self.model.opened(last, now);
    }

    fn close(&mut self, shut: Shut) -> Checked {
        let store = self.store().clone();
        let answer = if shut == Shut::Close { store.close() } else { block_on(store.close_async()) };
        answer.map_err(|error| format!("{error:?}"))?;
        self.model.close();
        // Every handle says so.
        let mut answers =
            vec![store.sync(), store.scope("late").map(drop), self.scope(0).claim("late").map(drop)];
        for (number, held) in self.guards.drain(..).enumerate() {
            answers.extend([held.guard.renew(), held.guard.note("late")]);
            answers.push(match number % 3 {
                0 => held.guard.complete(),
                1 => held.guard.abort(),
                _ => block_on(held.guard.complete_with_async("late")),
            });
        }
        self.live = None;
        let closed = Seen::Fails("Closed".to_owned());
        if let Some(answer) = answers.iter().find(|answer| done(answer) != closed) {
            return Err(format!("closed, but answered with {answer:?}"));
        }
        for waiting in self.waits.drain(..) {
            let seen = settled(waiting.running.wait(Duration::ZERO));
            // What had ended before may be told.
            if seen == Seen::StillRunning {
                return Err("closed, but a wait goes on".to_owned());
            }
        }
        Ok(())
    }

    fn drop_all(&mut self) {
        self.live = None;
        self.waits.clear();
        for held in std::mem::take(&mut self.guards) {
            drop(held.guard);
            self.model.change(|mut world, at| {
                world.settle(at, held.number, &End::Abort);
                vec![world]
            });
        }
        self.model.close();
    }

    fn cut_power(&mut self) -> Checked {
        self.disk.crash();
        // What cannot be made durable is not granted.
        let answer = self.scope(0).request("late").durability(Durability::Sync).claim();
        self.guards.clear();
        self.waits.clear();
        self.live = None;
        if answer.is_err() { Ok(()) } else { Err(format!("without power, but answered with {answer:?}")) }
    }

    /// Looks at everything, and where that leaves too many possibilities, tries it.
    pub fn survey(&mut self) -> Checked {
        for scope in 0..3 {
            for id in 0..4 {
                self.get(Door::Blocking, (scope, id))?;
            }
            for entity in 0..2 {
                self.last_applied((scope, entity))?;
            }
        }
        (0..self.fillers).try_for_each(|filler| self.contains((0, FIRST_FILLER + filler)))?;
        for scope in 0..3 {
            for id in 0..4 {
                if self.model.worlds.len() <= MOST_WORLDS {
                    break;
                }
                let guards = self.guards.len();
                self.begin(Door::Blocking, &Ask::plain(scope, id))?;
                if let Ok(last) = u8::try_from(guards)
                    && self.guards.len() > guards
                {
                    self.settle(Door::Blocking, last, &Ending::Abort)?;
                }
                self.sync(Door::Blocking)?;
            }
        }
        Ok(())
    }
}
