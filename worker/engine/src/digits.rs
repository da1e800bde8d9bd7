//! Decimal numbers in headers: ASCII digits only, without a sign, a space or an exponent.

/// Appends a number in decimal.
pub fn write(text: &mut Vec<u8>, number: impl itoa::Integer) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Parses a number from 0 to `max`. Returns `None` if `digits` is not such a number.
#[must_use]
pub fn read(digits: &[u8], max: u64) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    (number <= max).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn digits_and_nothing_else() {
        assert_eq!(read(b"0", 9), Some(0));
        assert_eq!(read(b"0042", 42), Some(42));
        assert_eq!(read(b"18446744073709551615", u64::MAX), Some(u64::MAX));
        for wrong in [&b""[..], b"43", b"-1", b"+1", b" 1", b"1 ", b"1e1", b"1.0", b"\xd9\xa3", b"18446744073709551616"]
        {
            assert_eq!(read(wrong, 42), None, "{wrong:?}");
        }
    }
}
