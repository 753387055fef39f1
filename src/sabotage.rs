//! Deliberate breaks, one at a time, to prove that the tests would see them. Compiled in only with the
//! feature `sabotage`, which is no part of the public interface.

/// A way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), expect(unreachable_pub, reason = "public with the feature"))]
#[repr(u8)]
pub enum Break {
    /// The journal says that it synced, and did not.
    SkipSync,
    /// What is being synced counts as durable already.
    AckBeforeSync,
    /// A sync that failed is tried again, and its second answer believed.
    RetrySync,
    /// A duplicate is answered before its original is durable.
    AnswerBeforeDurable,
    /// A frame that others call durable may be missing.
    IgnoreDurableNumber,
    /// Full segments are recycled although claims in progress still need them.
    RecycleEarly,
    /// Claims in progress are not appended again, and not missed, before their segment goes.
    ForgetLiveBegins,
    /// Every use of a segment has the same epoch.
    ReuseEpoch,
    /// Recovery goes on in the segment that it has read, behind the end that it found.
    AppendToReplayed,
    /// States go to runs whose frames are not durable.
    FlushUndurable,
    /// What a killed process left in the page cache is taken for the disk's.
    TrustPageCache,
    /// A state that replaces a tombstone does not last as long.
    DropTombstone,
    /// Files are removed before the catalog forgets them.
    UnlinkBeforeUnpublish,
    /// Collection runs by a clock of its own.
    ExpireEarly,
    /// A run is published before it is synced.
    SkipRunSync,
    /// A new file's name is not synced.
    SkipDirSync,
    /// A completion and its mark are two frames.
    SplitMark,
    /// An owner that was overtaken goes on.
    SkipFence,
    /// Tokens start anew at every opening.
    ReuseTokens,
    /// After a failure the journal takes more.
    SkipPoison,
    /// Orphans are not told from keys that nobody ever tried.
    DropOrphans,
    /// A record outlives its window by a second.
    ExpireLate,
    /// A key is new before what freed it is durable.
    NewBeforeFreed,
    /// What replaces the state that freed a key is not waited for as that was.
    HideOnce,
    /// A mark does not last as long as the one that it replaces.
    ShortenMark,
    /// Room in the journal that was set aside for a claim is given back twice when that is overtaken.
    GiveRoomBackTwice,
    /// The same when the caller of a claim in one step has its answer.
    GiveRoomBackTwiceWhenDelivered,
}

/// Whether this break is on.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub(crate) const fn is(_: Break) -> bool {
    false
}

#[cfg(feature = "sabotage")]
pub(crate) use switch::is;
#[cfg(feature = "sabotage")]
pub use switch::set;

#[cfg(feature = "sabotage")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Break;

    static ON: AtomicU8 = AtomicU8::new(u8::MAX);

    /// Turns one break on in every store of this process, or all off.
    pub fn set(which: Option<Break>) {
        ON.store(which.map_or(u8::MAX, |which| which as u8), Ordering::SeqCst);
    }

    pub(crate) fn is(which: Break) -> bool {
        ON.load(Ordering::Relaxed) == which as u8
    }
}

#[cfg(feature = "sabotage")]
impl Break {
    /// Every break.
    pub const ALL: [Self; 27] = [
        Self::SkipSync,
        Self::AckBeforeSync,
        Self::RetrySync,
        Self::AnswerBeforeDurable,
        Self::IgnoreDurableNumber,
        Self::RecycleEarly,
        Self::ForgetLiveBegins,
        Self::ReuseEpoch,
        Self::AppendToReplayed,
        Self::FlushUndurable,
        Self::TrustPageCache,
        Self::DropTombstone,
        Self::UnlinkBeforeUnpublish,
        Self::ExpireEarly,
        Self::SkipRunSync,
        Self::SkipDirSync,
        Self::SplitMark,
        Self::SkipFence,
        Self::ReuseTokens,
        Self::SkipPoison,
        Self::DropOrphans,
        Self::ExpireLate,
        Self::NewBeforeFreed,
        Self::HideOnce,
        Self::ShortenMark,
        Self::GiveRoomBackTwice,
        Self::GiveRoomBackTwiceWhenDelivered,
    ];
}
