//! How far each entity has come: at least to what was acknowledged, at most to what was tried.

use crate::facts::Line;
use oncedb::{Outcome, Scope, Timestamp};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default)]
struct Range {
    applied: u64,
    tried: u64,
}

#[derive(Debug, Default)]
pub struct Marks(BTreeMap<String, Range>);

impl Marks {
    pub fn hear(&mut self, line: &Line) -> Result<(), String> {
        match line {
            Line::Trying { entity, number } => {
                let range = self.0.entry(entity.clone()).or_default();
                range.tried = range.tried.max(*number);
            }
            Line::Applied { entity, number } => {
                let range = self.0.entry(entity.clone()).or_default();
                range.applied = range.applied.max(*number);
                if range.applied > range.tried {
                    return Err(format!("{entity} was told {number}, and nobody tried it: {range:?}"));
                }
            }
            other => return Err(format!("{other:?} is about no entity")),
        }
        Ok(())
    }

    /// What is found is demanded from then on.
    pub fn check(&mut self, scope: &Scope, wrong: &mut Vec<String>) {
        for (entity, range) in &mut self.0 {
            match check(scope, entity, *range) {
                Ok(found) => *range = Range { applied: found, tried: found },
                Err(what) => wrong.push(format!("the mark of {entity}: {what}")),
            }
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn check(scope: &Scope, entity: &str, known: Range) -> Result<u64, String> {
    let mark = scope.last_applied(entity).map_err(|error| error.to_string())?;
    let found = mark.and_then(|mark| mark.timestamp().as_sequence()).unwrap_or(0);
    if found < known.applied || found > known.tried {
        return Err(format!("it is at {found}, known: {known:?}"));
    }
    if found > 0 {
        let ask = |number| scope.request("a look").order(entity, Timestamp::sequence(number)).begin();
        let older = ask(found - 1).map_err(|error| error.to_string())?;
        if !older.is_stale() {
            return Err(format!("it is at {found}, and one before it is {older:?}"));
        }
        // Whoever held the entity is dead.
        let newer = ask(found + 1).map_err(|error| error.to_string())?;
        if !matches!(newer, Outcome::New(_)) {
            return Err(format!("it is at {found}, and one after it is {newer:?}"));
        }
    }
    Ok(found)
}
