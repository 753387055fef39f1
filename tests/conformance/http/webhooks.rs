//! Behind the layer for webhooks. A duplicate is told that all is well, and no more.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;
use oncedb::conformance::{Ability, Done, Event, Setup};
use oncedb::http::{Format, Place, Time, WebhookLayer};
use oncedb::simulation::MemoryDisk;
use oncedb::{ManualClock, Result};
use tower_layer::Layer;
use tower_service::Service;

use super::wire::Reply;
use super::{Layered, fingerprint, header, hex, length};
use crate::life::Life;

pub struct Webhooks;

impl Layered for Webhooks {
    fn open(setup: &Setup, disk: &MemoryDisk, clock: &ManualClock) -> Result<Life> {
        Life::open(setup, disk, clock, true)
    }

    fn can(ability: Ability) -> bool {
        !matches!(
            ability,
            Ability::Refusals | Ability::Responses | Ability::Size | Ability::Batches | Ability::Lookups
        )
    }

    fn headers(event: &Event) -> Vec<(&'static str, String)> {
        let mut headers = vec![("webhook-id", hex(&event.id))];
        if let Some((entity, at)) = &event.order {
            let seconds = at.as_micros().expect("a time") / 1_000_000;
            headers.extend([("x-entity", hex(entity)), ("x-at", seconds.to_string())]);
        }
        headers
    }

    async fn answer(life: &Life, request: Request, work: MethodRouter) -> Response {
        let (head, body) = request.into_parts();
        let scope = life.scope(&header(&head, "x-source").expect("it has one")).expect("the scope opens");
        let mut layer = WebhookLayer::new(scope)
            .order(Place::Header("x-entity"), Time::new(Place::Header("x-at"), Format::Seconds))
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
        assert_eq!((reply.status, reply.body.len()), (200, 0), "a duplicate is answered that all is well");
        Done::default()
    }

    fn forget(life: &Life, source: &str, id: &[u8]) -> bool {
        life.scope(&hex(source)).and_then(|scope| scope.forget(hex(id))).expect("it is free to go")
    }
}
