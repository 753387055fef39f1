//! All the states that the store may be in, after everything that was seen of it.
//!
//! What is not durable yet may be lost in a crash, but only from the end: the log keeps its order. So
//! the states before each such change are kept until something later is known to be durable.

use crate::names::{FIRST_FILLER, Key};
use crate::seen::{Seen, Why};
use crate::world::{Memory, Moment, NEVER, State, World};

#[derive(Debug)]
pub struct Model {
    pub worlds: Vec<World>,
    /// What a crash may go back to, the oldest first.
    behind: Vec<Vec<World>>,
    pub at: Moment,
    /// Every reading of the clock since the store was opened.
    pub readings: Vec<Moment>,
    /// The moment before the wall clock went back, as the store may have known it when it was opened.
    above: Vec<Option<Moment>>,
}

impl Model {
    pub fn new() -> Self {
        let at = Moment { now: 0, wall: 0 };
        Self { worlds: vec![World::default()], behind: Vec::new(), at, readings: vec![at], above: vec![None] }
    }

    /// Keeps the worlds in which `seen` is one of the answers. Haze over `ids` would show.
    pub fn expect(
        &mut self,
        ids: &[Key],
        seen: &Seen,
        answers: impl Fn(&mut World, Moment) -> Vec<Seen>,
    ) -> Result<(), String> {
        let at = self.at;
        let before: Vec<World> =
            self.worlds.iter().flat_map(|world| world.clone().clear(at.now, ids)).collect();
        let (mut kept, mut after, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for world in before {
            let mut next = world.clone();
            let answers = answers(&mut next, at);
            if answers.contains(seen) {
                kept.push(world);
                after.push(next);
            } else {
                expected.extend(answers);
            }
        }
        if after.is_empty() {
            expected.dedup();
            let worlds: Vec<_> = self.worlds.iter().take(3).map(World::summary).collect();
            return Err(format!(
                "seen      {seen:?}\nexpected  {expected:?}\nat        {at:?}\n{} worlds  {}",
                self.worlds.len(),
                worlds.join("\n          ")
            ));
        }
        self.replace(kept, after);
        Ok(())
    }

    /// Changes every world, which is not answered.
    pub fn change(&mut self, change: impl Fn(World, Moment) -> Vec<World>) {
        let after = self.worlds.iter().flat_map(|world| change(world.clone(), self.at)).collect();
        self.replace(self.worlds.clone(), after);
    }

    /// A change in several steps, which are recorded one after the other: the world after each.
    pub fn change_stepwise(&mut self, ids: &[Key], steps: impl Fn(World, Moment) -> Vec<World>) {
        let at = self.at;
        let clear = self.worlds.iter().flat_map(|world| world.clone().clear(at.now, ids));
        let paths: Vec<_> = clear.map(|world| steps(world, at)).collect();
        for step in 0..paths.iter().map(Vec::len).max().unwrap_or(0) {
            let worlds = paths.iter().map(|path| path[step.min(path.len() - 1)].clone()).collect();
            self.replace(self.worlds.clone(), worlds);
        }
    }

    /// Whether it may be so.
    pub fn can(&self, may: impl Fn(World, Moment) -> bool) -> bool {
        self.worlds.iter().any(|world| may(world.clone(), self.at))
    }

    /// Or else it is one of these.
    pub fn perhaps(&mut self, worlds: Vec<World>) {
        self.worlds.extend(worlds);
        unique(&mut self.worlds);
    }

    fn replace(&mut self, mut before: Vec<World>, mut after: Vec<World>) {
        if after == self.worlds {
            return;
        }
        if before != after {
            unique(&mut before);
            self.behind.push(before);
        }
        unique(&mut after);
        self.worlds = after;
    }

    /// Everything so far is on the disk for good.
    pub fn durable(&mut self) {
        self.behind.clear();
    }

    pub fn is_durable(&self) -> bool {
        self.behind.is_empty()
    }

    /// What was just told must hold after a crash too.
    pub fn pin(&mut self, ids: &[Key], holds: impl Fn(World, Moment) -> bool) {
        let at = self.at;
        for worlds in &mut self.behind {
            worlds.retain(|world| world.clone().clear(at.now, ids).into_iter().any(|world| holds(world, at)));
        }
        self.behind.retain(|worlds| !worlds.is_empty());
    }

    pub fn elapse(&mut self, by: i64) {
        self.at.now += by;
        self.at.wall += by;
        self.readings.push(self.at);
    }

    pub fn step_wall(&mut self, by: i64) {
        self.at.wall += by;
        self.readings.push(self.at);
    }

    /// A flush: what was remembered for lack of one is now remembered for its window.
    pub fn flush(&mut self) {
        let now = self.at.now;
        for world in &mut self.worlds {
            for memory in world.memories() {
                memory.journaled = false;
                memory.perhaps = memory.perhaps.min(now.saturating_add(memory.window)).max(memory.sure);
            }
        }
        self.durable();
    }

    /// The end of an open store: claims in progress become orphans, everything is flushed.
    pub fn close(&mut self) {
        let now = self.at.now;
        for world in &mut self.worlds {
            world.orphan_all(now, false);
            for memory in world.memories() {
                memory.taken_over = false;
            }
        }
        self.flush();
    }

    /// A recovery from the journal, at `now`: of all there was, or of what a power cut left.
    pub fn recover(&mut self, power_cut: bool, now: i64) {
        if power_cut {
            let behind = std::mem::take(&mut self.behind);
            self.worlds.extend(behind.into_iter().flatten());
        }
        for world in &mut self.worlds {
            for memory in world.memories() {
                let until = now.saturating_add(memory.window);
                if memory.taken_over {
                    memory.causes = vec![Why::LeaseExpired, Why::Orphaned];
                }
                if memory.taken_over || memory.journaled {
                    memory.perhaps = memory.perhaps.max(until);
                }
            }
            world.orphan_all(now, true);
        }
        self.durable();
    }

    /// The times at which a store goes on whose last stamp was this one: from there, or if the wall
    /// clock went back and has come past that again, from before it did. At most `most` counts.
    pub fn goes_on_at(&self, last: Moment, most: i64) -> impl Iterator<Item = i64> {
        let wall = self.at.wall;
        self.above_at(last).map(move |above| {
            let from = above.filter(|above| above.wall <= wall).unwrap_or(last);
            (from.now + (wall - from.wall).clamp(0, most)).max(last.now)
        })
    }

    /// The lowest wall times above this moment's that the store may know.
    fn above_at(&self, at: Moment) -> impl Iterator<Item = Option<Moment>> {
        let opened = self.readings[0];
        // Had nobody touched the clock.
        let untouched = Moment { now: at.now, wall: opened.wall + (at.now - opened.now) };
        self.above.iter().map(move |&above| lowest([above, Some(untouched)], at.wall))
    }

    /// The store is open from here on, at this time; its last stamp before was one of these.
    pub fn opened(&mut self, last: &[Moment], now: i64) {
        let wall = self.at.wall;
        let above = last.iter().flat_map(|&last| self.above_at(last).map(move |above| [above, Some(last)]));
        let mut above: Vec<_> = above.map(|known| lowest(known, wall)).collect();
        above.sort_unstable();
        above.dedup();
        self.above = above;
        self.at.now = now;
        self.readings = vec![self.at];
        unique(&mut self.worlds);
    }

    /// Nobody is left who waits for what has completed.
    pub fn forget_completions(&mut self) {
        self.worlds.iter_mut().for_each(|world| world.completed.clear());
    }
}

impl World {
    fn memories(&mut self) -> impl Iterator<Item = &mut Memory> {
        self.ids.values_mut().filter_map(|state| match state {
            State::Released(memory) => Some(memory),
            _ => None,
        })
    }

    /// Makes orphans of what is in progress.
    pub fn orphan_all(&mut self, now: i64, journaled: bool) {
        for (&key, state) in &mut self.ids {
            let State::Running(attempt) = state else { continue };
            let memory = Memory { journaled, ..attempt.released(Why::Orphaned, now) };
            let shadow = self.shadows.entry(key).or_insert(0);
            *shadow = memory.sure.max(*shadow);
            *state = State::Released(memory);
        }
    }
}

impl World {
    /// What matters most of it.
    fn summary(&self) -> String {
        let ids: Vec<_> = self.ids.iter().filter(|(key, _)| key.1 < FIRST_FILLER).collect();
        format!("{ids:?}, marks {:?}", self.marks)
    }
}

/// The one of the lowest wall time above `wall`.
fn lowest(known: [Option<Moment>; 2], wall: i64) -> Option<Moment> {
    known.into_iter().flatten().filter(|above| above.wall > wall).min_by_key(|above| above.wall)
}

fn unique(worlds: &mut Vec<World>) {
    worlds.sort_unstable();
    worlds.dedup();
}

impl Model {
    /// A moment that something depends on, if there is any: the `pick`th of those to come.
    pub fn turning_point(&self, pick: usize) -> Option<i64> {
        let mut points = Vec::new();
        for world in &self.worlds {
            points.extend(world.ids.values().map(|state| match state {
                State::Running(attempt) => attempt.lease_until,
                State::Finished(finished) => finished.expires_at,
                State::Released(memory) => memory.sure,
                State::Forgotten { sure, .. } => *sure,
            }));
            points.extend(world.marks.values().map(|mark| mark.until));
        }
        points.retain(|&point| point > self.at.now && point < NEVER);
        points.sort_unstable();
        points.dedup();
        points.get(pick % points.len().max(1)).copied()
    }
}
