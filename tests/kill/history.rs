//! What the parent knows of all the processes it has killed: it hears their lines, and what does not
//! agree with what it heard before is a violation.

use crate::facts::{Line, Span, Word, now};
use crate::marks::Marks;
use crate::shared::Shared;
use crate::solo::Solo;
use crate::state::Look;
use crate::words;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// More than these are not worth printing.
const MOST_VIOLATIONS: usize = 30;

#[derive(Debug)]
pub enum Tale {
    Solo(Solo),
    Shared(Shared),
}

#[derive(Debug)]
pub struct Key {
    pub tale: Tale,
    /// How often it was looked at since it was last heard of.
    pub checks: u32,
}

#[derive(Debug, Default)]
pub struct History {
    pub keys: BTreeMap<String, Key>,
    pub marks: Marks,
    /// One more for each process, the parent's own turns included.
    pub process: u32,
    pub tokens: Tokens,
    pub violations: Vec<String>,
    /// The answers that were heard, and those that promised to last.
    pub answers: u64,
    line: u64,
    /// What was said before this line is on the disk: something later was acknowledged as durable.
    durable: u64,
    syncing: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Tokens {
    given: BTreeSet<u64>,
    /// The highest one of all earlier processes.
    floor: u64,
}

impl Tokens {
    pub fn give(&mut self, token: u64) -> Result<(), String> {
        if token > self.floor && self.given.insert(token) {
            return Ok(());
        }
        Err(format!("token {token} is not new; earlier processes came to {}", self.floor))
    }

    fn next_process(&mut self) {
        let highest = self.given.last().copied().unwrap_or(0);
        self.floor = self.floor.max(highest);
        self.given.clear();
    }
}

impl History {
    pub fn wrong(&mut self, what: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            eprintln!("violation: {what}");
            self.violations.push(what);
        }
    }

    pub fn all_wrong(&mut self, what: Vec<String>) {
        for what in what {
            self.wrong(what);
        }
    }

    /// Another process has the store from now on.
    pub fn next_process(&mut self) {
        self.process += 1;
        self.tokens.next_process();
        (self.line, self.durable, self.syncing) = (0, 0, None);
    }

    pub fn hear(&mut self, said: &str) {
        self.line += 1;
        let line = Line::parse(said);
        let heard = match &line {
            Line::Key { id, span, word } => self.hear_of_key(id, *span, word),
            Line::Trying { .. } | Line::Applied { .. } => self.marks.hear(&line),
            Line::Syncing => {
                self.syncing = Some(self.line);
                Ok(())
            }
            Line::Synced => {
                self.durable = self.durable.max(self.syncing.take().unwrap_or(0));
                Ok(())
            }
            Line::Opening | Line::Open | Line::Closing => Ok(()),
            Line::Closed => {
                self.durable = u64::MAX;
                Ok(())
            }
            Line::Failed(what) => Err(what.clone()),
        };
        if let Err(what) = heard {
            self.wrong(format!("under load, process {}: {what}", self.process));
        }
    }

    fn hear_of_key(&mut self, id: &str, span: Span, word: &Word) -> Result<(), String> {
        if !self.keys.contains_key(id) {
            let shared = words::is_shared(id);
            let tale = if shared { Tale::Shared(Shared::default()) } else { Tale::Solo(Solo::default()) };
            self.keys.insert(id.to_owned(), Key { tale, checks: 0 });
        }
        let key = self.keys.get_mut(id).expect("it was just put there");
        key.checks = 0;
        if !matches!(word, Word::Try(_)) {
            self.answers += 1;
        }
        if let Word::Granted(grant) = word {
            self.tokens.give(grant.token).map_err(|what| format!("{id}: {what}"))?;
        }
        let look = Look { id, process: self.process, span };
        let heard = match &mut key.tale {
            Tale::Solo(solo) => {
                solo.hear(word, look, self.line).map(|line| self.durable = self.durable.max(line))
            }
            Tale::Shared(shared) => shared.hear(id, word, span, self.line),
        };
        heard.map_err(|what| format!("{id}: {what}"))
    }

    /// Whether the process has closed its store.
    pub fn was_closed(&self) -> bool {
        self.durable == u64::MAX
    }

    /// The process is dead, and all it said was heard.
    pub fn bury(&mut self) {
        let mut wrong = Vec::new();
        let span = Span::since(now());
        for (id, key) in self.keys.iter_mut().filter(|(_, key)| key.checks == 0) {
            match &mut key.tale {
                Tale::Solo(solo) => solo.end(self.durable, id, self.process, span),
                Tale::Shared(shared) => match shared.end(self.durable, self.process, span) {
                    Ok(may) => key.tale = Tale::Solo(Solo::one_of(may)),
                    Err(what) => wrong.push(format!("{id}: {what}")),
                },
            }
        }
        self.all_wrong(wrong);
    }
}

impl Display for History {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} keys, {} entities, {} processes", self.keys.len(), self.marks.len(), self.process)
    }
}
