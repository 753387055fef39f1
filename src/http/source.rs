//! Where in a request a value is.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use serde_json::value::RawValue;

use super::moment;
use crate::timestamp::Timestamp;

/// Where in a request a value is, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A header, by its name in lower case. A header that is there more than once has no value: nobody
    /// could say which one counts.
    Header(&'static str),
    /// Several headers, whose values are one value together, with line feeds between. All must be there.
    Headers(&'static [&'static str]),
    /// A string or number in a JSON body, by the names of the fields that lead to it with dots between:
    /// `data.object.id`.
    Json(&'static str),
}

/// How a time of change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Whole seconds since 1970.
    Seconds,
    /// Whole milliseconds since 1970.
    Millis,
    /// RFC 3339: `2026-12-01T12:00:00.5Z`; what is finer than a microsecond is cut off.
    Rfc3339,
    /// A number that grows with every change of an entity; see
    /// [`Timestamp::sequence`](crate::Timestamp::sequence).
    Sequence,
}

/// Where a request says when the change happened, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Where it is.
    pub place: Place,
    /// How it is written.
    pub format: Format,
}

type Function = dyn Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// Where a value of a request comes from: an id or an entity.
///
/// ```
/// use oncedb::http::{Place, Source};
///
/// let header: Source = Place::Header("x-event-id").into();
/// let field: Source = Place::Json("data.object.id").into();
/// let path = Source::of_head(|parts| Some(parts.uri.path().as_bytes().to_vec()));
/// # let _ = (header, field, path);
/// ```
#[derive(Clone)]
pub struct Source(Kind);

#[derive(Clone)]
enum Kind {
    /// One, or several in their order.
    Headers(Vec<HeaderName>),
    Json(&'static str),
    Function {
        function: Arc<Function>,
        needs_body: bool,
    },
}

impl Source {
    /// A header.
    #[must_use]
    pub fn header(name: HeaderName) -> Self {
        Self(Kind::Headers(vec![name]))
    }

    /// A function of the head; `None` for a request that has no such value.
    pub fn of_head(function: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Kind::Function { function: Arc::new(move |parts, _| function(parts)), needs_body: false })
    }

    /// A function of the head and the whole body, which is buffered for it.
    pub fn of_request(function: impl Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Kind::Function { function: Arc::new(function), needs_body: true })
    }

    pub(crate) fn needs_body(&self) -> bool {
        match &self.0 {
            Kind::Headers(_) => false,
            Kind::Json(_) => true,
            Kind::Function { needs_body, .. } => *needs_body,
        }
    }

    /// The value, if the request has one that is not empty.
    pub(crate) fn of<'a>(&self, seen: &Seen<'a>) -> Option<Cow<'a, [u8]>> {
        let value = match &self.0 {
            Kind::Headers(names) => match &**names {
                [name] => header(seen.parts, name)?.into(),
                names => {
                    let values = names.iter().map(|name| header(seen.parts, name));
                    // No header has a line feed in it, so no two lists of values make the same.
                    values.collect::<Option<Vec<_>>>()?.join(&b'\n').into()
                }
            },
            Kind::Json(path) => seen.json(path)?,
            Kind::Function { function, .. } => function(seen.parts, seen.body)?.into(),
        };
        Some(value).filter(|value| !value.is_empty())
    }
}

/// The value of a header that is there once and is not empty.
fn header<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = parts.headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    Some(value.as_bytes().trim_ascii()).filter(|value| !value.is_empty())
}

/// # Panics
///
/// If a header's name is none, or has upper-case letters.
impl From<Place> for Source {
    fn from(place: Place) -> Self {
        match place {
            Place::Header(name) => Self::header(HeaderName::from_static(name)),
            Place::Headers(names) => {
                Self(Kind::Headers(names.iter().copied().map(HeaderName::from_static).collect()))
            }
            Place::Json(path) => Self(Kind::Json(path)),
        }
    }
}

impl From<HeaderName> for Source {
    fn from(name: HeaderName) -> Self {
        Self::header(name)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Headers(names) => f.debug_tuple("Headers").field(names).finish(),
            Kind::Json(path) => f.debug_tuple("Json").field(path).finish(),
            Kind::Function { needs_body, .. } => {
                f.debug_struct("Function").field("needs_body", needs_body).finish_non_exhaustive()
            }
        }
    }
}

/// Where the time of change of a request comes from.
#[derive(Clone, Debug)]
pub struct Time {
    source: Source,
    format: Format,
}

impl Time {
    /// A value of the request, written in this format.
    pub fn new(source: impl Into<Source>, format: Format) -> Self {
        Self { source: source.into(), format }
    }

    pub(crate) fn needs_body(&self) -> bool {
        self.source.needs_body()
    }

    pub(crate) fn of(&self, seen: &Seen<'_>) -> Option<Timestamp> {
        let value = self.source.of(seen)?;
        let text = std::str::from_utf8(&value).ok()?;
        match self.format {
            Format::Seconds => text.parse().ok().map(Timestamp::from_secs),
            Format::Millis => text.parse().ok().map(Timestamp::from_millis),
            Format::Sequence => text.parse().ok().map(Timestamp::sequence),
            Format::Rfc3339 => moment::micros(text).map(Timestamp::from_micros),
        }
    }
}

impl From<Changed> for Time {
    fn from(changed: Changed) -> Self {
        Self::new(changed.place, changed.format)
    }
}

/// A request while it is looked at; its JSON is read once, and no deeper than it is asked for.
pub(crate) struct Seen<'a> {
    parts: &'a Parts,
    body: &'a [u8],
    object: OnceCell<Option<Object<'a>>>,
}

type Object<'a> = HashMap<String, &'a RawValue>;

impl<'a> Seen<'a> {
    pub(crate) fn new(parts: &'a Parts, body: &'a [u8]) -> Self {
        Self { parts, body, object: OnceCell::new() }
    }

    pub(crate) fn parts(&self) -> &'a Parts {
        self.parts
    }

    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The string or number at the end of a path.
    fn json(&self, path: &str) -> Option<Cow<'a, [u8]>> {
        let object = self.object.get_or_init(|| serde_json::from_slice(self.body).ok()).as_ref()?;
        let (first, mut rest) = head_and_rest(path);
        let mut value = *object.get(first)?;
        while let Some(path) = rest {
            let name;
            (name, rest) = head_and_rest(path);
            let object: Object<'a> = serde_json::from_str(value.get()).ok()?;
            value = *object.get(name)?;
        }
        let text = value.get();
        match text.bytes().next()? {
            b'"' => serde_json::from_str::<String>(text).ok().map(|text| text.into_bytes().into()),
            b'-' | b'0'..=b'9' => Some(text.as_bytes().into()),
            _ => None,
        }
    }
}

fn head_and_rest(path: &str) -> (&str, Option<&str>) {
    path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let request = http::Request::builder()
            .uri("/hooks")
            .header("x-id", " evt_1 ")
            .header("x-other", "o")
            .header("x-empty", "")
            .header("x-twice", "a")
            .header("x-twice", "b");
        request.body(()).unwrap().into_parts().0
    }

    fn found(place: Place, body: &str) -> Option<String> {
        let parts = parts();
        let value = Source::from(place).of(&Seen::new(&parts, body.as_bytes()));
        value.map(|value| String::from_utf8(value.into_owned()).unwrap())
    }

    #[test]
    fn a_header_has_one_value_or_none() {
        assert_eq!(found(Place::Header("x-id"), "").as_deref(), Some("evt_1"));
        for none in ["x-empty", "x-twice", "x-missing"] {
            assert_eq!(found(Place::Header(none), ""), None, "{none}");
        }
    }

    #[test]
    fn several_headers_are_one_value_or_none() {
        assert_eq!(found(Place::Headers(&["x-other", "x-id"]), "").as_deref(), Some("o\nevt_1"));
        assert_eq!(found(Place::Headers(&["x-id", "x-other"]), "").as_deref(), Some("evt_1\no"));
        for none in ["x-empty", "x-twice", "x-missing"] {
            let names: &'static [&'static str] = Vec::leak(vec!["x-id", none]);
            assert_eq!(found(Place::Headers(names), ""), None, "{none}");
        }
        assert_eq!(found(Place::Headers(&[]), ""), None);
    }

    #[test]
    fn a_json_field_is_a_string_or_a_number() {
        let body = r#"{"id": "evt_\u0031", "created": 1700000000, "data": {"object": {"id": "sub.1"}},
                       "none": null, "list": [1], "empty": ""}"#;
        assert_eq!(found(Place::Json("id"), body).as_deref(), Some("evt_1"));
        assert_eq!(found(Place::Json("created"), body).as_deref(), Some("1700000000"));
        assert_eq!(found(Place::Json("data.object.id"), body).as_deref(), Some("sub.1"));
        for none in ["none", "list", "empty", "data", "data.object", "id.x", "data.x.id", "", "."] {
            assert_eq!(found(Place::Json(none), body), None, "{none}");
        }
        for damaged in ["", "{", "[]", "\"id\"", r#"{"id": "evt_1"} x"#] {
            assert_eq!(found(Place::Json("id"), damaged), None, "{damaged}");
        }
    }

    #[test]
    fn a_time_is_read_in_its_format_or_not_at_all() {
        let parts = parts();
        let time =
            |format, body: &str| Time::new(Place::Json("at"), format).of(&Seen::new(&parts, body.as_bytes()));
        assert_eq!(time(Format::Seconds, r#"{"at": 7}"#), Some(Timestamp::from_secs(7)));
        assert_eq!(time(Format::Millis, r#"{"at": "7"}"#), Some(Timestamp::from_millis(7)));
        assert_eq!(time(Format::Sequence, r#"{"at": 7}"#), Some(Timestamp::sequence(7)));
        let written = r#"{"at": "1970-01-01T00:00:07Z"}"#;
        assert_eq!(time(Format::Rfc3339, written), Some(Timestamp::from_secs(7)));
        assert_eq!(time(Format::Seconds, r#"{"at": 7.5}"#), None);
        assert_eq!(time(Format::Sequence, r#"{"at": -7}"#), None);
        assert_eq!(time(Format::Rfc3339, r#"{"at": 7}"#), None);
    }
}
