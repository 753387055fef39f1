//! Which replies complete a claim.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};

/// What a rule decides about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finished<'a> {
    /// The status of the reply.
    pub status: StatusCode,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its trailers, once the body has ended with some. A rule is asked when the head is there, and
    /// in [`IdempotencyLayer`](super::IdempotencyLayer) again when trailers are.
    pub trailers: Option<&'a HeaderMap>,
}

impl Finished<'_> {
    /// The `grpc-status` of a gRPC reply, from its headers or its trailers.
    #[must_use]
    pub fn grpc_status(&self) -> Option<u8> {
        let value = self.headers.get(GRPC_STATUS).or_else(|| self.trailers?.get(GRPC_STATUS))?;
        // A status that cannot be read is an unknown error.
        Some(value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(GRPC_UNKNOWN))
    }
}

const GRPC_STATUS: &str = "grpc-status";
const GRPC_UNKNOWN: u8 = 2;

/// Whether a reply means that the work is done, so that the claim is completed; else it is freed and
/// the next attempt is new.
///
/// ```
/// use oncedb::http::Rule;
///
/// // A receiver that answers 409 to what it will never want again.
/// let rule = Rule::new(|reply| reply.status.is_success() || reply.status.as_u16() == 409);
/// # let _ = rule;
/// ```
#[derive(Clone)]
pub struct Rule(Arc<dyn Fn(&Finished<'_>) -> bool + Send + Sync>);

impl Rule {
    /// A rule of your own: `true` completes, `false` frees.
    pub fn new(rule: impl Fn(&Finished<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    /// Completes on 2xx; a gRPC reply only if its headers do not tell of an error. The default of
    /// [`WebhookLayer`](super::WebhookLayer).
    #[must_use]
    pub fn success() -> Self {
        Self::new(|reply| reply.status.is_success() && reply.grpc_status().unwrap_or(0) == 0)
    }

    /// Completes on 2xx and on 4xx but for those that ask to be tried again: 408, 421, 425 and 429, and 401
    /// and 407, with other credentials. Of gRPC errors those complete that another try would not cure:
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `PERMISSION_DENIED`, `FAILED_PRECONDITION`,
    /// `OUT_OF_RANGE`, `UNIMPLEMENTED`. The default of [`IdempotencyLayer`](super::IdempotencyLayer).
    #[must_use]
    pub fn final_answers() -> Self {
        Self::new(|reply| match reply.grpc_status() {
            Some(status) => reply.status.is_success() && matches!(status, 0 | 3 | 5 | 6 | 7 | 9 | 11 | 12),
            None => {
                reply.status.is_success()
                    || (reply.status.is_client_error()
                        && !matches!(reply.status.as_u16(), 401 | 407 | 408 | 421 | 425 | 429))
            }
        })
    }

    pub(crate) fn completes(&self, reply: &Finished<'_>) -> bool {
        (self.0)(reply)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completes(rule: &Rule, status: u16, grpc: Option<&'static str>) -> bool {
        let (mut headers, status) = (HeaderMap::new(), StatusCode::from_u16(status).unwrap());
        if let Some(grpc) = grpc {
            headers.insert(GRPC_STATUS, http::HeaderValue::from_static(grpc));
        }
        rule.completes(&Finished { status, headers: &headers, trailers: None })
    }

    #[test]
    fn success_is_2xx_and_nothing_else() {
        let completing: Vec<u16> =
            (100..600).filter(|&status| completes(&Rule::success(), status, None)).collect();
        assert_eq!(completing, (200..300).collect::<Vec<_>>());
    }

    #[test]
    fn final_answers_are_2xx_and_4xx_but_for_those_that_ask_to_be_tried_again() {
        let completing: Vec<u16> =
            (100..600).filter(|&status| completes(&Rule::final_answers(), status, None)).collect();
        let expected: Vec<u16> = (200..300)
            .chain(400..500)
            .filter(|status| ![401, 407, 408, 421, 425, 429].contains(status))
            .collect();
        assert_eq!(completing, expected);
    }

    #[test]
    fn a_failed_grpc_call_is_no_success_although_its_status_is_200() {
        assert!(completes(&Rule::success(), 200, Some("0")));
        assert!(!completes(&Rule::success(), 200, Some("14")));
        assert!(!completes(&Rule::success(), 200, Some("garbage")));
        assert!(completes(&Rule::final_answers(), 200, Some("6")));
        assert!(!completes(&Rule::final_answers(), 200, Some("14")));
        assert!(!completes(&Rule::final_answers(), 200, Some("16")), "other credentials may cure it");
    }
}
