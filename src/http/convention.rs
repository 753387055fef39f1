//! What the senders of webhooks have agreed on, as data.

use std::time::Duration;

use super::source::{Changed, Format, Place};

/// How one sender, or one specification, delivers events: where the id is, how long it tries, where the
/// time of the change is. See [`WebhookLayer::of`](super::WebhookLayer::of).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Convention {
    /// Whose it is.
    pub name: &'static str,
    /// Where the id of the event is: the same in every delivery of it.
    pub id: Place,
    /// Where the time of the change is, if there is one. It orders events only where an entity is named.
    pub changed: Option<Changed>,
    /// From the first delivery to the last one that the sender makes by itself, or lets a person ask for
    /// in the usual way.
    pub retries: Duration,
    /// How long the layer keeps an id: longer than `retries`, so that the last delivery is known again.
    pub window: Duration,
    /// A place and its value in requests that are no events and have no id. They go to the inner service
    /// as they are.
    pub handshake: Option<(Place, &'static str)>,
    /// Where all of this is documented.
    pub documented_at: &'static str,
}

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

/// Standard Webhooks 1.0.0: the header `webhook-id`; an example schedule of retries that ends 75 h 35 min 5 s
/// after the first delivery; the payload's `timestamp`, in ISO 8601, is when the event occurred (the header
/// `webhook-timestamp` is when the delivery was made).
///
/// Source: the specification's sections "Payload structure", "Webhook headers" and "Deliverability and
/// reliability".
pub const STANDARD_WEBHOOKS: Convention = Convention {
    name: "Standard Webhooks",
    id: Place::Header("webhook-id"),
    changed: Some(Changed { place: Place::Json("timestamp"), format: Format::Rfc3339 }),
    retries: Duration::from_secs(75 * HOUR + 35 * 60 + 5),
    window: Duration::from_secs(5 * DAY),
    handshake: None,
    documented_at: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
};

/// Stripe: the `id` of the event object in the body, its `created` in seconds; up to three days of retries.
/// Several events of an object may be created in one second: see [`Ties`](crate::Ties).
///
/// A person can resend an event for 30 days with Stripe's command line: set a
/// [`window`](super::WebhookLayer::window) of 31 days if yours does.
///
/// Source: Stripe's pages "Process undelivered webhook events" and "events resend".
pub const STRIPE: Convention = Convention {
    name: "Stripe",
    id: Place::Json("id"),
    changed: Some(Changed { place: Place::Json("created"), format: Format::Seconds }),
    retries: Duration::from_secs(3 * DAY),
    window: Duration::from_secs(5 * DAY),
    handshake: None,
    documented_at: "https://docs.stripe.com/webhooks/process-undelivered-events",
};

/// GitHub: the header `X-GitHub-Delivery` names the event. It never retries by itself; within three days
/// (seven on an Enterprise Server) a person or a script can ask for a delivery again. No header and no common
/// field says when the change happened.
///
/// Source: GitHub's pages "Webhook events and payloads" and "Redelivering webhooks".
pub const GITHUB: Convention = Convention {
    name: "GitHub",
    id: Place::Header("x-github-delivery"),
    changed: None,
    retries: Duration::from_secs(3 * DAY),
    window: Duration::from_secs(8 * DAY),
    handshake: None,
    documented_at: "https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks",
};

/// Shopify: the header `X-Shopify-Event-Id` is the same in every delivery of an event, and
/// `X-Shopify-Triggered-At` is when it was triggered; eight retries over four hours. One event can be delivered
/// under several topics, so the id is `X-Shopify-Topic` and the event's together.
///
/// Source: Shopify's pages "Ignore duplicate webhooks" and "Updates to webhook retry mechanism".
pub const SHOPIFY: Convention = Convention {
    name: "Shopify",
    id: Place::Headers(&["x-shopify-topic", "x-shopify-event-id"]),
    changed: Some(Changed { place: Place::Header("x-shopify-triggered-at"), format: Format::Rfc3339 }),
    retries: Duration::from_secs(4 * HOUR),
    window: Duration::from_secs(DAY),
    handshake: None,
    documented_at: "https://shopify.dev/docs/apps/build/webhooks/ignore-duplicates",
};

/// Slack's Events API: `event_id` and `event_time` (seconds) in the body; three retries, at once, after one
/// minute and after five minutes. The `url_verification` handshake has no event in it.
///
/// Slack takes an answer that is later than three seconds for none, so wait no longer than that.
///
/// Source: Slack's pages "Events API" and "event".
pub const SLACK: Convention = Convention {
    name: "Slack",
    id: Place::Json("event_id"),
    changed: Some(Changed { place: Place::Json("event_time"), format: Format::Seconds }),
    retries: Duration::from_secs(6 * 60),
    window: Duration::from_secs(DAY),
    handshake: Some((Place::Json("type"), "url_verification")),
    documented_at: "https://api.slack.com/apis/events-api",
};

/// All of them.
pub const CONVENTIONS: [Convention; 5] = [STANDARD_WEBHOOKS, STRIPE, GITHUB, SHOPIFY, SLACK];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Source;

    #[test]
    fn an_id_is_kept_for_longer_than_its_sender_tries() {
        for convention in CONVENTIONS {
            assert!(convention.window > convention.retries, "{}", convention.name);
            let _ = Source::from(convention.id);
            let _ = convention.changed.map(|changed| Source::from(changed.place));
            assert!(convention.documented_at.starts_with("https://"));
        }
    }

    #[test]
    fn each_sender_tries_for_as_long_as_it_says() {
        let minutes = |length: Duration| length.as_secs() / 60;
        let spans = CONVENTIONS.map(|convention| (convention.name, minutes(convention.retries)));
        let expected = [
            ("Standard Webhooks", 4_535),
            ("Stripe", 3 * 24 * 60),
            ("GitHub", 3 * 24 * 60),
            ("Shopify", 4 * 60),
            ("Slack", 6),
        ];
        assert_eq!(spans, expected);
        let windows = CONVENTIONS.map(|convention| convention.window.as_secs() / 86_400);
        assert_eq!(windows, [5, 5, 8, 1, 1], "in days");
    }
}
