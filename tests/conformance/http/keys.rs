//! Behind the layer for the `Idempotency-Key` header. A duplicate is told what the first was.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;
use bytes::Bytes;
use oncedb::conformance::{Ability, Done, Event, Reply as Kept, Setup};
use oncedb::http::{Dialect, IdempotencyLayer, Refusal};
use oncedb::simulation::MemoryDisk;
use oncedb::{ManualClock, Result};
use tower_layer::Layer;
use tower_service::Service;

use super::wire::Reply;
use super::{Layered, fingerprint, header, hex, length};
use crate::life::Life;

pub struct Keys;

/// The draft's answers, and the length of a reply that was not kept where a program can read it.
fn dialect() -> Dialect {
    Dialect::new(|refusal| {
        let mut response = axum::http::Response::new(Bytes::new());
        let status = match refusal {
            Refusal::InProgress { retry_after } => {
                response.headers_mut().insert("retry-after", retry_after.as_secs().into());
                409
            }
            Refusal::Mismatch => 422,
            Refusal::ReplyNotKept { len, .. } => {
                response.headers_mut().insert("x-omitted", len.expect("it is known").into());
                410
            }
            Refusal::KeyMissing | Refusal::KeyInvalid { .. } => 400,
            _ => 503,
        };
        *response.status_mut() = status.try_into().expect("a status");
        response
    })
}

impl Layered for Keys {
    fn open(setup: &Setup, disk: &MemoryDisk, clock: &ManualClock) -> Result<Life> {
        Life::open_for_replies(setup, disk, clock)
    }

    fn can(ability: Ability) -> bool {
        !matches!(
            ability,
            Ability::Order
                | Ability::StaleIsTold
                | Ability::RejectTies
                | Ability::MaxAhead
                | Ability::Size
                | Ability::Batches
                | Ability::Lookups
        )
    }

    fn headers(event: &Event) -> Vec<(&'static str, String)> {
        vec![("idempotency-key", hex(&event.id))]
    }

    async fn answer(life: &Life, request: Request, work: MethodRouter) -> Response {
        let (head, body) = request.into_parts();
        let scope = life.scope("api").expect("the scope opens");
        let mut layer = IdempotencyLayer::new(scope, |head| header(head, "x-source"))
            .required()
            .dialect(dialect())
            .fingerprint(fingerprint());
        if let Some(window) = length(&head, "x-window") {
            layer = layer.window(window);
        }
        if let Some(lease) = length(&head, "x-lease") {
            layer = layer.lease(lease);
        }
        let Ok(response) = layer.layer(work).call(Request::from_parts(head, body)).await;
        response.map(Body::new)
    }

    fn done(reply: &Reply) -> Done {
        assert_eq!(reply.header("idempotent-replayed"), Some("true"));
        let response = match (reply.header("x-omitted"), &reply.body[..]) {
            (Some(len), _) => Kept::Omitted(len.parse().expect("a length")),
            // No body and an empty one are the same in HTTP.
            (None, b"") => Kept::None,
            (None, body) => Kept::Stored(body.to_vec()),
        };
        let refusal = reply.status == 409;
        Done { response, refusal }
    }

    fn forget(life: &Life, source: &str, id: &[u8]) -> bool {
        let (source, key) = (hex(source), hex(id));
        let len = u8::try_from(source.len()).expect("short enough for one byte of length");
        let composed = [&[len], source.as_bytes(), key.as_bytes()].concat();
        life.scope("api").and_then(|scope| scope.forget(composed)).expect("it is free to go")
    }
}
