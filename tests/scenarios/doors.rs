//! The doors a scenario goes through: each does the same, and none may answer differently.

use crate::common::{PATIENCE, block_on};
use oncedb::{
    Advance, Guard, InProgress, Outcome, Record, Request, Result, Scope, Settled, Store, Timestamp,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Blocking,
    Async,
}

/// A method that goes through the blocking call or its `_async` twin.
macro_rules! doors {
    ($($name:ident($on:ident: $kind:ty $(, $arg:ident: $arg_kind:ty)*) -> $answer:ty
        = $blocking:ident | $future:ident;)*) => {$(
        pub fn $name(self, $on: $kind $(, $arg: $arg_kind)*) -> Result<$answer> {
            match self {
                Self::Blocking => $on.$blocking($($arg),*),
                Self::Async => block_on($on.$future($($arg),*)),
            }
        }
    )*};
}

impl Door {
    doors! {
        claim(scope: &Scope, id: impl AsRef<[u8]>) -> Outcome<Record> = claim | claim_async;
        begin(scope: &Scope, id: impl AsRef<[u8]>) -> Outcome<Guard> = begin | begin_async;
        get(scope: &Scope, id: impl AsRef<[u8]>) -> Option<Record> = get | get_async;
        forget(scope: &Scope, id: impl AsRef<[u8]>) -> bool = forget | forget_async;
        advance(scope: &Scope, entity: &str, at: Timestamp) -> Advance = advance | advance_async;

        claim_request(request: Request) -> Outcome<Record> = claim | claim_async;
        claim_with(request: Request, response: impl AsRef<[u8]>) -> Outcome<Record>
            = claim_with | claim_with_async;
        begin_request(request: Request) -> Outcome<Guard> = begin | begin_async;

        complete(guard: Guard) -> () = complete | complete_async;
        complete_with(guard: Guard, response: impl AsRef<[u8]>) -> ()
            = complete_with | complete_with_async;
        refuse(guard: Guard, response: impl AsRef<[u8]>) -> () = refuse | refuse_async;
        abort(guard: Guard) -> () = abort | abort_async;
        note(guard: &Guard, bytes: impl AsRef<[u8]>) -> () = note | note_async;

        complete_all(store: &Store, guards: Vec<Guard>) -> Vec<Result<()>>
            = complete_all | complete_all_async;
        complete_all_with(store: &Store, guards: Vec<(Guard, Vec<u8>)>) -> Vec<Result<()>>
            = complete_all_with | complete_all_with_async;
        claim_requests(store: &Store, requests: Vec<Request>) -> Vec<Result<Outcome<Record>>>
            = claim_requests | claim_requests_async;
        begin_requests(store: &Store, requests: Vec<Request>) -> Vec<Result<Outcome<Guard>>>
            = begin_requests | begin_requests_async;
        close(store: &Store) -> () = close | close_async;
        reopen(store: &Store) -> () = reopen | reopen_async;
        sync(store: &Store) -> () = sync | sync_async;
    }

    pub fn claim_many(
        self,
        scope: &Scope,
        ids: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Outcome<Record>>> {
        match self {
            Self::Blocking => scope.claim_many(ids),
            Self::Async => block_on(scope.claim_many_async(ids)),
        }
    }

    pub fn wait(self, running: &InProgress) -> Result<Settled> {
        match self {
            Self::Blocking => running.wait(PATIENCE),
            Self::Async => block_on(running.wait_async()),
        }
    }

    /// What a child process is told to go through; `named` reads it back.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Async => "async",
        }
    }

    pub fn named(name: &str) -> Self {
        [Self::Blocking, Self::Async]
            .into_iter()
            .find(|door| door.name() == name)
            .expect("a door of that name")
    }
}

/// Makes each scenario a test through every door.
macro_rules! through_every_door {
    ($($scenario:ident),+ $(,)?) => {$(
        mod $scenario {
            use crate::doors::Door;

            #[test]
            fn blocking() {
                super::$scenario(Door::Blocking);
            }

            #[test]
            fn through_futures() {
                super::$scenario(Door::Async);
            }
        }
    )+};
}
pub(crate) use through_every_door;
