//! Times as RFC 3339 writes them.

/// Microseconds since 1970; what is finer is cut off.
pub(crate) fn micros(text: &str) -> Option<i64> {
    let mut rest = text.as_bytes();
    let year = number(&mut rest, 4)?;
    separator(&mut rest, b"-")?;
    let month = number(&mut rest, 2).filter(|month| (1..=12).contains(month))?;
    separator(&mut rest, b"-")?;
    let day = number(&mut rest, 2).filter(|&day| (1..=days_in(year, month)).contains(&day))?;
    separator(&mut rest, b"Tt ")?;
    let hour = number(&mut rest, 2).filter(|hour| *hour < 24)?;
    separator(&mut rest, b":")?;
    let minute = number(&mut rest, 2).filter(|minute| *minute < 60)?;
    separator(&mut rest, b":")?;
    // The second that a leap adds counts as the one after it.
    let second = number(&mut rest, 2).filter(|second| *second <= 60)?;
    let fraction = fraction(&mut rest)?;
    let offset = offset(rest)?;
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - offset;
    Some((minutes * 60 + second) * 1_000_000 + fraction)
}

fn number(rest: &mut &[u8], digits: usize) -> Option<i64> {
    let (taken, after) = rest.split_at_checked(digits)?;
    *rest = after;
    taken
        .iter()
        .try_fold(0, |number, &digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

fn separator(rest: &mut &[u8], allowed: &[u8]) -> Option<u8> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    allowed.contains(&first).then_some(first)
}

/// Microseconds after a dot, if there is one.
fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let Some(after) = rest.strip_prefix(b".") else { return Some(0) };
    let digits = after.iter().take_while(|digit| digit.is_ascii_digit()).count();
    let (digits, after) = after.split_at(digits);
    *rest = after;
    if digits.is_empty() {
        return None;
    }
    Some((0..6).fold(0, |micros, at| micros * 10 + i64::from(digits.get(at).map_or(0, |digit| digit - b'0'))))
}

/// Minutes ahead of UTC.
fn offset(mut rest: &[u8]) -> Option<i64> {
    let sign = match separator(&mut rest, b"Zz+-")? {
        b'+' => 1,
        b'-' => -1,
        _ => return rest.is_empty().then_some(0),
    };
    let hours = number(&mut rest, 2).filter(|hours| *hours < 24)?;
    separator(&mut rest, b":")?;
    let minutes = number(&mut rest, 2).filter(|minutes| *minutes < 60)?;
    rest.is_empty().then_some(sign * (hours * 60 + minutes))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let before = if year == 0 { -1 } else { leaps(year - 1) };
    let years = year * 365 + before - (1970 * 365 + leaps(1969));
    years + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        let second = 1_000_000;
        assert_eq!(micros("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(micros("2023-03-29T18:00:27.877041743Z"), Some(1_680_112_827_877_041));
        assert_eq!(micros("2022-11-03T20:26:10.344522+02:00"), Some(1_667_499_970_344_522));
        assert_eq!(micros("2026-12-01 00:00:00-01:30"), Some(1_796_088_600 * second));
        assert_eq!(micros("2000-02-29T12:00:00.5z"), Some(951_825_600 * second + 500_000));
        assert_eq!(micros("1969-12-31T23:59:59.999999Z"), Some(-1));
        assert_eq!(micros("2016-12-31T23:59:60Z"), micros("2017-01-01T00:00:00Z"));
        assert_eq!(
            micros("0000-03-01T00:00:00Z"),
            micros("0000-02-29T24:00:00Z").or(Some(-62_162_035_200 * second))
        );
    }

    #[test]
    fn every_day_is_one_after_the_day_before() {
        let mut expected = 0;
        for year in 1970..2110 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    assert_eq!(days_since_1970(year, month, day), expected, "{year}-{month}-{day}");
                    expected += 1;
                }
            }
        }
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in [
            "",
            "2026-12-01",
            "2026-12-01T00:00Z",
            "2026-12-01T00:00:00",
            "2026-12-01T00:00:00.Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T00:60:00Z",
            "2026-12-01T00:00:61Z",
            "2026-12-01T00:00:00+24:00",
            "2026-12-01T00:00:00Zx",
            "2026-12-01T00:00:00+0100",
            "+026-12-01T00:00:00Z",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }
}
