//! Which headers of a reply are stored.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, DATE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Set on every reply that comes from the store.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Never stored: credentials and cookies, what is about one connection, what the server makes anew.
const NEVER: [HeaderName; 17] = [
    SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    COOKIE,
    AUTHORIZATION,
    HeaderName::from_static("authentication-info"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
    DATE,
    REPLAYED,
];

/// Says which headers to store.
pub(crate) type Chosen = dyn Fn(&HeaderName) -> bool + Send + Sync;

/// The headers to store, repeated ones in their order. `chosen` narrows what is stored and never widens it.
pub(crate) fn stored(
    headers: &HeaderMap,
    chosen: impl Fn(&HeaderName) -> bool,
) -> Vec<(&HeaderName, &HeaderValue)> {
    let is_stored = |(name, value): &(&HeaderName, &HeaderValue)| {
        // A value that was marked as sensitive is a credential by its maker's word.
        !value.is_sensitive()
            && !NEVER.contains(name)
            && !is_named_by_connection(headers, name)
            && chosen(name)
    };
    headers.iter().filter(is_stored).collect()
}

/// Whether `Connection` says that a header is about the connection.
fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|&byte| byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_credentials_and_what_is_about_the_connection_are_not_stored() {
        let mut headers = HeaderMap::new();
        let cookies = ["cookie", "set-cookie", "set-cookie2"];
        let credentials = [
            "authorization",
            "authentication-info",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-authentication-info",
        ];
        let connection =
            ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];
        let anew = ["content-length", "date", "idempotent-replayed"];
        let names = [&cookies[..], &credentials, &connection, &anew].concat();
        assert_eq!(names.len(), NEVER.len());
        for name in names {
            headers.append(name, HeaderValue::from_static("v"));
        }
        headers.insert(CONNECTION, HeaderValue::from_static("close, X-Hop"));
        headers.append("x-hop", HeaderValue::from_static("v"));
        let mut secret = HeaderValue::from_static("token");
        secret.set_sensitive(true);
        headers.append("x-token", secret);
        assert!(stored(&headers, |_| true).is_empty());
    }

    #[test]
    fn repeated_headers_survive_and_a_choice_narrows() {
        let mut headers = HeaderMap::new();
        headers.append("link", HeaderValue::from_static("</a>"));
        headers.append("link", HeaderValue::from_static("</b>"));
        headers.append("x-other", HeaderValue::from_static("v"));
        let kept = |chosen: &Chosen| -> Vec<_> {
            let kept = stored(&headers, chosen);
            kept.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
        };
        assert_eq!(kept(&|_| true), [("link", "</a>"), ("link", "</b>"), ("x-other", "v")]);
        assert_eq!(kept(&|name| name == "link"), [("link", "</a>"), ("link", "</b>")]);
        assert!(kept(&|name| name == SET_COOKIE).is_empty());
    }
}
