//! A store with one of everything, as files that can be copied and damaged, and what it must answer.

use super::common::{HOUR, SECOND, new, noon};
use oncedb::simulation::MemoryDisk;
use oncedb::{Cause, ManualClock, Options, Outcome, Response, ScopeOptions, Store, Timestamp};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub const DIR: &str = "store";
pub const SCOPES: [&str; 3] = ["stripe", "github", "orders"];
const MINUTE: Duration = Duration::from_secs(60);

/// All files of a store, at a moment at which it is not open.
#[derive(Clone)]
pub struct Image {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub clock: ManualClock,
}

/// A question, by scope and id or entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    Get(&'static str, String),
    Contains(&'static str, String),
    Claim(&'static str, String),
    Mark(&'static str, String),
}

/// When the answer to each question that has one was recorded.
pub type Recorded = BTreeMap<Question, SystemTime>;

pub type Answer = oncedb::Result<String>;

impl Image {
    pub fn of(disk: &MemoryDisk, clock: &ManualClock) -> Self {
        let files = disk.files().into_iter().map(|(path, _)| {
            let bytes = disk.contents(&path).unwrap();
            (path, bytes)
        });
        Self { files: files.collect(), clock: clock.clone() }
    }

    pub fn disk(&self, seed: u64) -> MemoryDisk {
        let disk = MemoryDisk::new(seed);
        for (path, bytes) in &self.files {
            disk.replace(path, bytes);
        }
        disk
    }

    pub fn options(&self, disk: &MemoryDisk) -> Options {
        options().clock(self.clock.clone()).disk(disk)
    }

    pub fn open(&self) -> oncedb::Result<Store> {
        self.options(&self.disk(1)).open(DIR)
    }

    /// The paths of all files whose name ends like this.
    pub fn ending(&self, ending: &str) -> Vec<PathBuf> {
        self.files.keys().filter(|path| path.to_string_lossy().ends_with(ending)).cloned().collect()
    }
}

/// The frames of a segment: where each begins and ends, its number, and the number it promises.
pub fn frames(segment: &[u8]) -> Vec<(usize, usize, u64, u64)> {
    let word =
        |at: usize| segment.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()));
    let mut frames = Vec::new();
    let mut at = 512;
    while word(at) & 0xffff_ffff != 0 && word(at + 24) == word(24) {
        let records = usize::try_from(word(at) & 0xffff_ffff).unwrap();
        let end = at + (32 + records).next_multiple_of(8);
        frames.push((at, end, word(at + 8), word(at + 16)));
        at = end;
    }
    frames
}

fn options() -> Options {
    Store::options()
        .memory_limit(1 << 20)
        .max_key_len(64)
        .max_response_len(4 << 10)
        .max_note_len(64)
        .window(4 * HOUR)
        .segment_size(16 << 10)
        .threads(false)
}

fn response(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(3) { 1_500 } else { 20 };
    (0..len).map(|place: u64| u8::try_from((place * 7 + number) % 251).unwrap()).collect()
}

/// Builds a store and leaves it: closed, or by a power cut with a part of it in the journal alone.
pub fn sample(closed: bool) -> Image {
    let disk = MemoryDisk::new(7);
    let clock = ManualClock::new(noon());
    let store = options().clock(clock.clone()).disk(&disk).open(DIR).unwrap();
    let stripe = store.scope(SCOPES[0]).unwrap();
    let github = store.scope_with(SCOPES[1], ScopeOptions::new().window(20 * HOUR)).unwrap();
    let orders = store.scope(SCOPES[2]).unwrap();
    for phase in 0..6_u64 {
        for number in phase * 12..phase * 12 + 12 {
            clock.advance(SECOND);
            let _ = new(stripe.request(format!("evt_{number}")).claim_with(response(number)));
            let _ = new(github.claim(format!("push_{number}")));
            let at = Timestamp::from_secs(1_000 + i64::try_from(number).unwrap());
            let request =
                orders.request(format!("order_{number}")).order(format!("entity_{}", number % 5), at);
            let guard = new(request.begin());
            match number % 4 {
                0 => guard.complete_with(response(number)).unwrap(),
                1 => guard.refuse("no").unwrap(),
                2 => guard.complete().unwrap(),
                _ => guard.abort().unwrap(),
            }
        }
        assert!(stripe.forget(format!("evt_{}", phase * 12 + 1)).unwrap());
        if phase > 0 {
            assert!(stripe.forget(format!("evt_{}", phase * 12 - 10)).unwrap());
        }
        if phase < 4 {
            let done = store.maintain().unwrap();
            assert!(done.flushed > 0);
            clock.advance(7 * MINUTE);
        }
    }
    assert!(orders.forget_mark("entity_4").unwrap());
    let guard = new(stripe.begin("running"));
    guard.note("half way").unwrap();
    if closed {
        drop(guard);
        store.close().unwrap();
    } else {
        store.sync().unwrap();
        disk.crash();
        drop((guard, stripe, github, orders, store));
    }
    clock.advance(MINUTE);
    Image::of(&disk, &clock)
}

/// Everything that is asked, what does not change the store first.
pub fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ids = Vec::new();
    for number in 0..73 {
        ids.push((SCOPES[0], format!("evt_{number}")));
        ids.push((SCOPES[1], format!("push_{number}")));
        ids.push((SCOPES[2], format!("order_{number}")));
    }
    ids.push((SCOPES[0], "running".into()));
    questions.extend((0..6).map(|entity| Question::Mark(SCOPES[2], format!("entity_{entity}"))));
    questions.extend(ids.iter().map(|(scope, id)| Question::Get(scope, id.clone())));
    let some = || ids.iter().step_by(4);
    questions.extend(some().map(|(scope, id)| Question::Contains(scope, id.clone())));
    questions.extend(some().map(|(scope, id)| Question::Claim(scope, id.clone())));
    questions
}

/// What a store says to a question, in words that differ wherever anything differs.
pub fn ask(store: &Store, question: &Question) -> Answer {
    let describe = |record: &oncedb::Record| {
        let response = match record.response() {
            Response::None => "no response".into(),
            Response::Stored(bytes) => format!("{bytes:?}"),
            Response::Omitted { len } => format!("{len} omitted"),
        };
        let times = (record.claimed_at(), record.completed_at(), record.expires_at());
        format!("{times:?} {} {} {response}", record.attempt(), record.is_refusal())
    };
    Ok(match question {
        Question::Get(scope, id) => store.scope(scope)?.get(id)?.as_ref().map_or("none".into(), describe),
        Question::Contains(scope, id) => store.scope(scope)?.contains(id)?.to_string(),
        Question::Mark(scope, entity) => format!("{:?}", store.scope(scope)?.last_applied(entity)?),
        Question::Claim(scope, id) => match store.scope(scope)?.begin(id)? {
            Outcome::New(guard) => {
                let previous = guard.previous().map(|previous| (previous.cause, previous.note.clone()));
                format!("new, attempt {} after {previous:?}", guard.attempt())
            }
            Outcome::Duplicate(record) => format!("duplicate of {}", describe(&record)),
            other => format!("{other:?}"),
        },
    })
}

/// The answers of a sound store.
pub fn answers(image: &Image, questions: &[Question]) -> Vec<String> {
    let store = image.open().unwrap();
    questions.iter().map(|question| ask(&store, question).unwrap()).collect()
}

/// When what each answer rests on was recorded, for the answers that rest on a completion or a mark.
pub fn recorded(image: &Image, questions: &[Question]) -> Recorded {
    let store = image.open().unwrap();
    let when = |question: &Question| match question {
        Question::Get(scope, id) | Question::Contains(scope, id) | Question::Claim(scope, id) => {
            store.scope(scope).unwrap().get(id).unwrap().and_then(|record| record.completed_at())
        }
        Question::Mark(scope, entity) => {
            store.scope(scope).unwrap().last_applied(entity).unwrap().map(|mark| mark.applied_at())
        }
    };
    questions.iter().filter_map(|question| Some((question.clone(), when(question)?))).collect()
}

/// The sample holds what it is there for.
pub fn check_sample(image: &Image, closed: bool) {
    assert!(image.ending(".run").len() >= 2, "{:?}", image.files.keys());
    assert!(image.ending(".responses").len() >= 2);
    let with_frames = |path: &&PathBuf| !frames(&image.files[*path]).is_empty();
    let segments = image.ending(".segment");
    assert!(closed || segments.iter().filter(with_frames).count() >= 2, "the log goes over segments");
    let store = image.open().unwrap();
    assert_eq!(store.stats().orphans_found, u64::from(!closed));
    let again = new(store.scope(SCOPES[0]).unwrap().begin("running"));
    let cause = if closed { Cause::Aborted } else { Cause::Orphaned };
    assert_eq!(again.previous().unwrap().cause, cause);
}
