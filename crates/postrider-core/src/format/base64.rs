//! Base64 (RFC 4648, with padding), for payloads that JSON cannot hold. Too little to depend on a crate for.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0u8; 3];
        group.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            if place > chunk.len() {
                text.push('=');
            } else {
                let six = (bits >> (18 - 6 * place)) & 0x3f;
                text.push(ALPHABET.get(six as usize).copied().unwrap_or(b'=').into());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn the_test_vectors_of_rfc_4648_come_out() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.into_iter().enumerate() {
            assert_eq!(encode("foobar".as_bytes().get(..length).unwrap_or_default()), expected);
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xbf]), "+/+/");
    }
}
