//! The `Idempotency-Key` header, and the id that a principal and a key make.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

/// Bytes of a key, without its quotes.
pub(crate) const MAX_KEY: usize = 255;

/// Why a request has no usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    Missing,
    Invalid(&'static str),
}

const REPEATED: &str = "the header is given more than once; send one key";
const EMPTY: &str = "the key is empty";
const LONG: &str = "the key is longer than 255 characters";
const QUOTES: &str = "the key is not one quoted string of printable ASCII characters";
const BARE: &str = "a key with spaces, commas, quotes or characters other than printable ASCII has to be a quoted \
                    string";

/// The key of a request: a string after RFC 8941 (quoted), or a bare value of visible ASCII characters.
pub(crate) fn of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Cow<'a, [u8]>, NoKey> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(NoKey::Missing)?;
    if values.next().is_some() {
        return Err(NoKey::Invalid(REPEATED));
    }
    let value = value.as_bytes().trim_ascii();
    let key: Cow<'_, [u8]> = match value.split_first() {
        None => return Err(NoKey::Invalid(EMPTY)),
        Some((b'"', rest)) => quoted(rest).ok_or(NoKey::Invalid(QUOTES))?.into(),
        Some(_) if value.iter().all(|&byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"')) => {
            value.into()
        }
        Some(_) => return Err(NoKey::Invalid(BARE)),
    };
    match key.len() {
        0 => Err(NoKey::Invalid(EMPTY)),
        1..=MAX_KEY => Ok(key),
        _ => Err(NoKey::Invalid(LONG)),
    }
}

/// What stands between the quotes, where the second one ends the value.
fn quoted(rest: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter().copied();
    loop {
        match bytes.next()? {
            b'"' => return bytes.next().is_none().then_some(key),
            b'\\' => match bytes.next()? {
                escaped @ (b'"' | b'\\') => key.push(escaped),
                _ => return None,
            },
            byte @ 0x20..=0x7e => key.push(byte),
            _ => return None,
        }
    }
}

/// An id of which the principal and the key can be told apart again: no two pairs make the same.
pub(crate) fn compose(principal: &[u8], key: &[u8]) -> Vec<u8> {
    let mut id = Vec::with_capacity(8 + principal.len() + key.len());
    crate::codec::put_bytes(&mut id, principal);
    id.extend_from_slice(key);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn parsed(values: &[&[u8]]) -> Result<Vec<u8>, NoKey> {
        let name = HeaderName::from_static("idempotency-key");
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_bytes(value).unwrap());
        }
        of(&headers, &name).map(Cow::into_owned)
    }

    #[test]
    fn quoted_and_bare_are_one_key() {
        let key = b"8e03978e-40d5-43e8-bc93-6894a57f9324".to_vec();
        assert_eq!(parsed(&[b"\"8e03978e-40d5-43e8-bc93-6894a57f9324\""]), Ok(key.clone()));
        assert_eq!(parsed(&[b"  8e03978e-40d5-43e8-bc93-6894a57f9324 "]), Ok(key));
        assert_eq!(parsed(&[br#""a\"b\\c, d""#]), Ok(br#"a"b\c, d"#.to_vec()));
    }

    #[test]
    fn what_is_no_key_is_named() {
        let long = [b'a'; MAX_KEY + 1];
        assert_eq!(parsed(&[]), Err(NoKey::Missing));
        assert_eq!(parsed(&[b"a", b"a"]), Err(NoKey::Invalid(REPEATED)));
        assert_eq!(parsed(&[b" "]), Err(NoKey::Invalid(EMPTY)));
        assert_eq!(parsed(&[b"\"\""]), Err(NoKey::Invalid(EMPTY)));
        assert_eq!(parsed(&[&long]), Err(NoKey::Invalid(LONG)));
        assert_eq!(parsed(&[&long[1..]]), Ok(long[1..].to_vec()));
        for bare in [&b"a, b"[..], b"a,b", b"a\"b", b"caf\xc3\xa9", b"a\tb"] {
            assert_eq!(parsed(&[bare]), Err(NoKey::Invalid(BARE)));
        }
        for quotes in [&b"\"a"[..], b"\"a\"b", b"\"a\", \"b\"", b"\"a\\x\"", b"\"\xc3\xa9\"", b"\"", b"\"\\"]
        {
            assert_eq!(parsed(&[quotes]), Err(NoKey::Invalid(QUOTES)));
        }
    }

    #[test]
    fn no_two_pairs_of_principal_and_key_make_one_id() {
        assert_ne!(compose(b"a", b"bc"), compose(b"ab", b"c"));
        assert_ne!(compose(b"", b"abc"), compose(b"abc", b""));
        assert_ne!(compose(&[b'x'; 128], b"k"), compose(&[b'x'; 127], b"xk"));
    }
}
