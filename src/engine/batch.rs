//! Many claims with one sync, and claims whose caller is a future.

use std::sync::Arc;

use super::Engine;
use super::claim::{Ask, Lookups, Verdict};
use super::drive::{Patience, Step};
use crate::error::{Error, Result};

/// Claims on their way. Until they are delivered, dropping this takes back what was granted.
#[derive(Debug)]
pub(crate) struct Batch {
    engine: Arc<Engine>,
    items: Vec<Item>,
    /// The last frame that a caller must wait for.
    frame: Option<u64>,
    /// Whether one that fails makes all fail.
    whole: bool,
}

#[derive(Debug)]
struct Item {
    /// `None` once answered.
    asked: Option<(Ask, Lookups)>,
    answer: Result<Verdict>,
}

impl Batch {
    /// The claims, in order; those whose input was refused stay so.
    pub(crate) fn new(engine: Arc<Engine>, asks: Vec<Result<Ask>>) -> Self {
        let number = engine.batch_number();
        let item = |ask| match ask {
            // The answer is a placeholder until the claim has been decided.
            Ok(ask) => Item {
                asked: Some((Ask { batch: number, ..ask }, Lookups::default())),
                answer: Err(Error::Closed),
            },
            Err(error) => Item { asked: None, answer: Err(error) },
        };
        Self { engine, items: asks.into_iter().map(item).collect(), frame: None, whole: false }
    }

    /// Makes them stand or fall together.
    pub(crate) fn all_or_none(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Decides in order, as far as there is room.
    fn step(&mut self, patience: &mut Patience) -> Result<Step<()>> {
        for item in &mut self.items {
            let Some((ask, lookups)) = &mut item.asked else { continue };
            let answer = match self.engine.decide(ask, lookups, patience) {
                Ok(Step::Done(verdict)) => {
                    if let Verdict::New(_) = &verdict {
                        *patience = Patience::default();
                    }
                    let awaited = self.engine.awaited(ask, &verdict).max(lookups.frame);
                    self.frame = self.frame.max(awaited);
                    Ok(verdict)
                }
                Ok(Step::Wait(wait)) => return Ok(Step::Wait(wait)),
                Err(error @ (Error::Full { .. } | Error::TimestampKind | Error::TooFarAhead { .. })) => {
                    Err(error)
                }
                Err(error) => return Err(error),
            };
            item.answer = answer;
            item.asked = None;
        }
        Ok(Step::Done(()))
    }

    /// Decides all and waits once, on this thread.
    pub(crate) fn run(mut self) -> Result<Self> {
        let engine = Arc::clone(&self.engine);
        engine.drive(|patience| self.step(patience))?;
        self.check_whole()?;
        if let Some(seq) = self.frame {
            engine.wait_durable(seq)?;
        }
        Ok(self)
    }

    /// The same for a future.
    pub(crate) async fn run_async(mut self) -> Result<Self> {
        let engine = Arc::clone(&self.engine);
        engine.drive_async(|patience| self.step(patience)).await?;
        self.check_whole()?;
        if let Some(seq) = self.frame {
            engine.wait_durable_async(seq).await?;
        }
        Ok(self)
    }

    /// Fails if the claims stand or fall together and one failed; whoever drops the batch then takes
    /// everything back.
    fn check_whole(&mut self) -> Result<()> {
        match self.items.iter_mut().find(|item| item.answer.is_err()) {
            Some(failed) if self.whole => {
                Err(std::mem::replace(&mut failed.answer, Err(Error::Closed)).err().unwrap_or(Error::Closed))
            }
            _ => Ok(()),
        }
    }

    /// The answers; from here on they stay.
    pub(crate) fn deliver(mut self) -> Vec<Result<Verdict>> {
        let items = std::mem::take(&mut self.items);
        let deliver = |item: Item| {
            if let Ok(Verdict::New(granted)) = &item.answer {
                self.engine.deliver(granted);
            }
            item.answer
        };
        items.into_iter().map(deliver).collect()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The last first: a mark goes back to what it was before the batch, step by step.
        for item in self.items.iter().rev() {
            if let Ok(Verdict::New(granted)) = &item.answer {
                self.engine.take_back(granted);
            }
        }
    }
}
