//! The conventions of senders: each finds the id again in the last delivery, and the order where there is one.

use crate::client::{Client, Reply};
use crate::common::{Place, SECOND};
use crate::server::{OPEN, Server, Work};
use oncedb::http::{
    CONVENTIONS, Convention, GITHUB, Place as Where, SHOPIFY, SLACK, STANDARD_WEBHOOKS, STRIPE, WebhookLayer,
};

/// A delivery of the event with this id, changed so many seconds into an hour.
fn delivery(convention: &Convention, id: &str, second: u32) -> (Vec<(&'static str, String)>, String) {
    match convention.name {
        "Standard Webhooks" => {
            let at = format!("2026-12-01T12:00:{second:02}.250Z");
            (vec![("webhook-id", id.into())], format!(r#"{{"timestamp": "{at}", "data": {{"id": "o"}}}}"#))
        }
        "Stripe" => {
            let created = 1_796_126_400 + second;
            (
                vec![],
                format!(r#"{{"id": "{id}", "created": {created}, "data": {{"object": {{"id": "o"}}}}}}"#),
            )
        }
        "GitHub" => (vec![("X-GitHub-Delivery", id.into())], "{}".into()),
        "Shopify" => {
            let at = format!("2026-12-01T12:00:{second:02}.123456789Z");
            let headers = vec![
                ("X-Shopify-Topic", "orders/updated".into()),
                ("X-Shopify-Event-Id", id.into()),
                ("X-Shopify-Triggered-At", at),
            ];
            (headers, r#"{"id": 7}"#.into())
        }
        "Slack" => {
            let at = 1_796_126_400 + second;
            (
                vec![],
                format!(
                    r#"{{"type": "event_callback", "event_id": "{id}", "event_time": {at}, "team_id": "o"}}"#
                ),
            )
        }
        other => panic!("no delivery of {other}"),
    }
}

fn send(client: &Client, convention: &Convention, id: &str, second: u32) -> Reply {
    let (headers, body) = delivery(convention, id, second);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &value[..])).collect();
    client.send("POST", "/hook", &headers, &body)
}

fn start(layer: impl FnOnce(oncedb::Scope) -> WebhookLayer) -> (Place, Work, Server) {
    let place = Place::new();
    let scope = place.open().scope("events").expect("the scope opens");
    let (work, _) = Work::counting();
    work.open_gate(OPEN);
    let server = Server::start(work.routes().layer(layer(scope)));
    (place, work, server)
}

/// The last delivery that a sender makes is a duplicate of the first.
#[test]
fn the_last_retry_is_a_duplicate() {
    for convention in &CONVENTIONS {
        let (place, work, server) = start(|scope| WebhookLayer::of(scope, convention));
        send(&server.client(), convention, "evt_1", 1).expect(201, "run 1");
        place.clock.advance(convention.retries);
        send(&server.client(), convention, "evt_1", 1).expect(200, "");
        send(&server.client(), convention, "evt_2", 1).expect(201, "run 2");
        place.clock.advance(convention.window.saturating_sub(convention.retries) + SECOND);
        send(&server.client(), convention, "evt_1", 1).expect(201, "run 3");
        assert_eq!(work.runs(), 3, "{}", convention.name);
    }
}

/// Where a convention says when the change happened, an older event of the entity is stale.
#[test]
fn an_older_event_of_an_entity_is_stale() {
    let entities =
        [(STANDARD_WEBHOOKS, "data.id"), (STRIPE, "data.object.id"), (SHOPIFY, "id"), (SLACK, "team_id")];
    for (convention, entity) in entities {
        let (_place, work, server) =
            start(|scope| WebhookLayer::of(scope, &convention).entity(Where::Json(entity)));
        send(&server.client(), &convention, "evt_2", 2).expect(201, "run 1");
        send(&server.client(), &convention, "evt_1", 1).expect(200, "");
        send(&server.client(), &convention, "evt_3", 3).expect(201, "run 2");
        assert_eq!(work.runs(), 2, "{}", convention.name);
    }
}

/// What Shopify delivers of one event under two topics is handled under both.
#[test]
fn an_event_is_handled_under_each_of_its_topics() {
    let (_place, work, server) = start(|scope| WebhookLayer::of(scope, &SHOPIFY));
    let deliver = |topic| {
        let headers = [("X-Shopify-Topic", topic), ("X-Shopify-Event-Id", "evt_1")];
        server.client().send("POST", "/hook", &headers, "{}").status
    };
    let topics = ["orders/create", "orders/updated", "orders/create", "orders/updated"];
    assert_eq!(topics.map(deliver), [201, 201, 200, 200]);
    assert_eq!(work.runs(), 2);
}

/// Slack's handshake has no event in it and reaches the inner service every time.
#[test]
fn a_handshake_passes() {
    let (_place, work, server) = start(|scope| WebhookLayer::of(scope, &SLACK));
    for _ in 0..2 {
        let body = r#"{"type": "url_verification", "challenge": "c"}"#;
        assert_eq!(server.client().send("POST", "/hook", &[], body).status, 201);
    }
    assert_eq!(server.client().send("POST", "/hook", &[], r#"{"type": "event_callback"}"#).status, 400);
    assert_eq!(work.runs(), 2);
}

/// A convention without a time of change does not order by it: that is said when the layer is made.
#[test]
#[should_panic(expected = "no convention says where the time of change is")]
fn a_convention_without_a_time_cannot_order() {
    let scope = Place::new().open().scope("events").expect("the scope opens");
    let _ = WebhookLayer::of(scope, &GITHUB).entity(Where::Json("repository.id"));
}
