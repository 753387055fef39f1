//! The handler: an effect outside the store, made once although the process may die at any point.
//!
//! There is one gap that no dedupe store can close from inside: the process dies after the effect
//! and before its completion. So the handler leaves a note before it acts, which the store has made
//! durable. The next attempt is told of the note, and looks whether the effect is there before it
//! acts. An attempt that finds no note may act at once, since nobody came that far before.
//!
//! Where the effect is a change in a database of your own, put the id into a table of that database
//! and commit both together.

use std::sync::Arc;

use oncedb::Guard;

use crate::Failed;
use crate::effects::{Effect, Effects};
use crate::rehearsal::Rehearsal;

const ABOUT_TO_ACT: &[u8] = b"about to act";

#[derive(Debug)]
pub enum Failure {
    /// The store could not keep the note.
    Store(oncedb::Error),
    /// The work itself failed.
    Work(Failed),
}

#[derive(Debug)]
pub struct Work {
    effects: Arc<Effects>,
    rehearsal: Rehearsal,
}

impl Work {
    pub fn new(effects: Effects, rehearsal: Rehearsal) -> Self {
        Self { effects: Arc::new(effects), rehearsal }
    }

    /// Makes the effect, or finds that it was made before: then `true`.
    pub async fn run(&self, guard: &Guard, effect: Effect) -> Result<bool, Failure> {
        let (source, id, attempt) = (effect.source, effect.id.clone(), guard.attempt());
        let noted = guard.previous().is_some_and(|previous| previous.note.is_some());

        guard.note_async(ABOUT_TO_ACT).await.map_err(Failure::Store)?;
        self.rehearsal
            .before_effect(source, &id, attempt)
            .await
            .map_err(|reason| Failure::Work(reason.into()))?;
        let found = self.act(noted, effect).await.map_err(Failure::Work)?;
        self.rehearsal.after_effect(source, &id, attempt).await;
        Ok(found)
    }

    /// Files block, so this leaves the threads that serve connections.
    async fn act(&self, look_first: bool, effect: Effect) -> Result<bool, Failed> {
        let effects = Arc::clone(&self.effects);
        let acting = tokio::task::spawn_blocking(move || -> Result<bool, Failed> {
            if look_first && effects.contains(effect.source, &effect.id)? {
                return Ok(true);
            }
            effects.apply(&effect)?;
            Ok(false)
        });
        acting.await?
    }
}
