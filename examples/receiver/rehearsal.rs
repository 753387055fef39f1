//! The mishaps of the demo: handlers that fail, take their time, or hang until they are killed.
//!
//! A receiver that is started without `--rehearse` has none of them.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use crate::event::Source;

/// What the handler does the first time it sees an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mishap {
    TakesMs(u64),
    Fails,
    HangsBeforeEffect,
    HangsAfterEffect,
}

impl Mishap {
    pub fn hangs(self) -> bool {
        matches!(self, Self::HangsBeforeEffect | Self::HangsAfterEffect)
    }
}

/// Longer than the demo waits before it kills the receiver, and still an end.
const HANG: Duration = Duration::from_secs(30);

/// Starts the line by which the receiver tells the demo that a handler is in the middle of an event.
pub const AT_WORK: &str = "at work:";

#[derive(Debug, Default)]
pub struct Rehearsal {
    mishaps: HashMap<(Source, String), Mishap>,
}

impl Rehearsal {
    pub fn new(mishaps: impl IntoIterator<Item = (Source, String, Mishap)>) -> Self {
        let mishaps = mishaps.into_iter().map(|(source, id, mishap)| ((source, id), mishap));
        Self { mishaps: mishaps.collect() }
    }

    /// The point between the note and the effect.
    pub async fn before_effect(&self, source: Source, id: &str, attempt: u32) -> Result<(), String> {
        match self.mishap(source, id, attempt) {
            Some(Mishap::Fails) => return Err("the service it calls did not answer".to_owned()),
            Some(Mishap::TakesMs(ms)) => pause(source, id, Duration::from_millis(ms)).await,
            Some(Mishap::HangsBeforeEffect) => pause(source, id, HANG).await,
            Some(Mishap::HangsAfterEffect) | None => {}
        }
        Ok(())
    }

    /// The point between the effect and the completion.
    pub async fn after_effect(&self, source: Source, id: &str, attempt: u32) {
        if self.mishap(source, id, attempt) == Some(Mishap::HangsAfterEffect) {
            pause(source, id, HANG).await;
        }
    }

    fn mishap(&self, source: Source, id: &str, attempt: u32) -> Option<Mishap> {
        if attempt > 1 || self.mishaps.is_empty() {
            return None;
        }
        self.mishaps.get(&(source, id.to_owned())).copied()
    }
}

async fn pause(source: Source, id: &str, time: Duration) {
    crate::server::say(&format!("{AT_WORK} {source} {id}"));
    tokio::time::sleep(time).await;
}
