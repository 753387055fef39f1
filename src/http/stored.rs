//! What is kept of a reply, and its form on disk.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::codec::{Reader, put_bytes, put_varint};

/// The first byte of every stored reply.
const VERSION: u8 = 1;

const REPLY: u8 = 1;
const OMITTED: u8 = 2;

/// What a completion keeps of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredReply {
    /// The whole of it.
    Kept(Box<Reply>),
    /// The body was too long to keep.
    Omitted {
        /// What it was answered with.
        status: StatusCode,
        /// The length of its body, in bytes.
        len: u64,
    },
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

type Header<'a> = (&'a HeaderName, &'a HeaderValue);

/// The form of a whole reply.
pub(crate) fn encode(
    status: StatusCode,
    headers: &[Header<'_>],
    body: &[u8],
    trailers: Option<&[Header<'_>]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + 48 * headers.len() + body.len());
    out.extend_from_slice(&[VERSION, REPLY]);
    out.extend_from_slice(&status.as_u16().to_le_bytes());
    put_headers(&mut out, headers);
    put_bytes(&mut out, body);
    out.push(u8::from(trailers.is_some()));
    if let Some(trailers) = trailers {
        put_headers(&mut out, trailers);
    }
    out
}

/// The form of a reply whose body of `len` bytes was too long to keep.
pub(crate) fn encode_omitted(status: StatusCode, len: u64) -> Vec<u8> {
    let mut out = vec![VERSION, OMITTED];
    out.extend_from_slice(&status.as_u16().to_le_bytes());
    put_varint(&mut out, len);
    out
}

impl StoredReply {
    #[cfg(any(test, fuzzing))]
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Kept(reply) => {
                let headers: Vec<_> = reply.headers.iter().collect();
                let trailers: Option<Vec<_>> =
                    reply.trailers.as_ref().map(|trailers| trailers.iter().collect());
                encode(reply.status, &headers, &reply.body, trailers.as_deref())
            }
            Self::Omitted { status, len } => encode_omitted(*status, *len),
        }
    }

    /// `None` for bytes that this version did not write.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let kind = reader.u8()?;
        let status = StatusCode::from_u16(reader.u16()?).ok()?;
        let stored = match kind {
            REPLY => {
                let headers = headers(&mut reader)?;
                let len = usize::try_from(reader.varint()?).ok()?;
                let body = Bytes::copy_from_slice(reader.take(len)?);
                let trailers = match reader.u8()? {
                    0 => None,
                    1 => Some(self::headers(&mut reader)?),
                    _ => return None,
                };
                Self::Kept(Box::new(Reply { status, headers, body, trailers }))
            }
            OMITTED => Self::Omitted { status, len: reader.varint()? },
            _ => return None,
        };
        reader.is_empty().then_some(stored)
    }
}

fn put_headers(out: &mut Vec<u8>, headers: &[Header<'_>]) {
    put_varint(out, headers.len() as u64);
    for (name, value) in headers {
        put_bytes(out, name.as_str().as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

fn headers(reader: &mut Reader<'_>) -> Option<HeaderMap> {
    let count = reader.varint()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let len = usize::try_from(reader.varint()?).ok()?;
        let name = reader.take(len)?;
        // Names are written in lower case, so that a reply has one encoding.
        if name.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let name = HeaderName::from_bytes(name).ok()?;
        let len = usize::try_from(reader.varint()?).ok()?;
        let value = HeaderValue::from_bytes(reader.take(len)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> StoredReply {
        let mut headers = HeaderMap::new();
        headers.append("content-type", HeaderValue::from_static("application/json"));
        headers.append("link", HeaderValue::from_static("</a>"));
        headers.append("link", HeaderValue::from_static("</b>"));
        headers.append("x-bytes", HeaderValue::from_bytes(b"caf\xc3\xa9 \xff").unwrap());
        let mut trailers = HeaderMap::new();
        trailers.append("grpc-status", HeaderValue::from_static("0"));
        let body = Bytes::from_static(b"{\"id\":1}\0\xff");
        StoredReply::Kept(Box::new(Reply {
            status: StatusCode::CREATED,
            headers,
            body,
            trailers: Some(trailers),
        }))
    }

    #[test]
    fn a_reply_comes_back_whole_with_repeated_headers_in_order() {
        let stored = reply();
        assert_eq!(StoredReply::decode(&stored.encode()), Some(stored));
        let omitted = StoredReply::Omitted { status: StatusCode::OK, len: u64::MAX };
        assert_eq!(StoredReply::decode(&omitted.encode()), Some(omitted));
    }

    #[test]
    fn the_bytes_of_version_1_are_these() {
        let mut headers = HeaderMap::new();
        headers.append("a", HeaderValue::from_static("bc"));
        let kept =
            Reply { status: StatusCode::CREATED, headers, body: Bytes::from_static(b"xyz"), trailers: None };
        assert_eq!(
            StoredReply::Kept(Box::new(kept)).encode(),
            [1, 1, 201, 0, 1, 1, b'a', 2, b'b', b'c', 3, b'x', b'y', b'z', 0]
        );
        let omitted = StoredReply::Omitted { status: StatusCode::OK, len: 300 };
        assert_eq!(omitted.encode(), [1, 2, 200, 0, 0xac, 0x02]);
    }

    #[test]
    fn every_cut_and_every_changed_byte_decodes_to_what_encodes_to_it_or_not_at_all() {
        let bytes = reply().encode();
        for len in 0..bytes.len() {
            assert_eq!(StoredReply::decode(&bytes[..len]), None, "cut to {len}");
        }
        for at in 0..bytes.len() {
            for value in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Some(decoded) = StoredReply::decode(&changed) {
                    let again = StoredReply::decode(&decoded.encode());
                    assert_eq!(again, Some(decoded), "byte {at} is {value}");
                }
            }
        }
    }
}
