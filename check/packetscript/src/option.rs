//! TCP options: what was received, and what a script says of them.

/// An option as it stands in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TcpOption {
    /// Kind 0.
    End,
    /// Kind 1.
    Nop,
    /// Kind 2 (RFC 9293 section 3.2).
    Mss(u16),
    /// Kind 3 (RFC 7323 section 2).
    WindowScale(u8),
    /// Kind 4 (RFC 2018 section 2).
    SackPermitted,
    /// Kind 5 (RFC 2018 section 3): left and right edges.
    Sack(Vec<(u32, u32)>),
    /// Kind 8 (RFC 7323 section 3).
    Timestamps {
        /// TSval.
        val: u32,
        /// TSecr.
        ecr: u32,
    },
    /// Any other kind, or one of a length that it cannot have.
    Other {
        /// Its kind.
        kind: u8,
        /// What follows the length.
        data: Vec<u8>,
    },
}

/// An option in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSpec {
    /// `eol`.
    End,
    /// `nop`.
    Nop,
    /// `mss N`; `None` is `*`.
    Mss(Option<u16>),
    /// `wscale N`; `None` is `*`.
    WindowScale(Option<u8>),
    /// `sackOK`.
    SackPermitted,
    /// `sack 1:2 3:4`, relative; `None` is `*`.
    Sack(Option<Vec<(u32, u32)>>),
    /// `TS val V ecr E`; `TS` alone: any, and to send the present time and the server's last one.
    Timestamps {
        /// TSval.
        val: Stamp,
        /// TSecr.
        ecr: Stamp,
    },
    /// `option KIND HEX`.
    Other {
        /// Its kind.
        kind: u8,
        /// What follows the length.
        data: Vec<u8>,
    },
}

/// A timestamp in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// A number: of the client as it is, of the server counted from its first on the connection.
    Number(u32),
    /// `*`: any; to send: the present time as TSval, the server's last as TSecr.
    Any,
    /// `$name`: a name given to the value when it was received, or the value so named.
    Named(String),
}

/// Splits the options of a header. What is malformed ends the list as [`TcpOption::Other`].
pub(crate) fn read(bytes: &[u8]) -> Vec<TcpOption> {
    let mut options = Vec::new();
    let mut rest = bytes;
    while let [kind, tail @ ..] = rest {
        match kind {
            0 => {
                options.push(TcpOption::End);
                return options;
            }
            1 => {
                options.push(TcpOption::Nop);
                rest = tail;
            }
            kind => {
                let len = tail.first().map_or(0, |len| usize::from(*len));
                let Some(data) = rest.get(2..len.max(2)).filter(|_| len >= 2) else {
                    options.push(TcpOption::Other { kind: *kind, data: tail.to_vec() });
                    return options;
                };
                options.push(known(*kind, data));
                rest = &rest[len..];
            }
        }
    }
    options
}

fn known(kind: u8, data: &[u8]) -> TcpOption {
    let word = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    match (kind, data.len()) {
        (2, 2) => TcpOption::Mss(u16::from_be_bytes([data[0], data[1]])),
        (3, 1) => TcpOption::WindowScale(data[0]),
        (4, 0) => TcpOption::SackPermitted,
        (5, len) if len > 0 && len.is_multiple_of(8) => TcpOption::Sack(
            (0..len / 8).map(|block| (word(8 * block), word(8 * block + 4))).collect(),
        ),
        (8, 8) => TcpOption::Timestamps { val: word(0), ecr: word(4) },
        _ => TcpOption::Other { kind, data: data.to_vec() },
    }
}

/// Writes options, with padding to a multiple of four bytes. Timestamps alone are laid out as RFC
/// 7323 appendix A recommends.
pub(crate) fn write(options: &[TcpOption]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if matches!(options, [TcpOption::Timestamps { .. } | TcpOption::Sack(_), ..]) {
        bytes.extend([1, 1]);
    }
    for (at, option) in options.iter().enumerate() {
        match option {
            TcpOption::End => bytes.push(0),
            TcpOption::Nop => bytes.push(1),
            TcpOption::Mss(mss) => bytes.extend([&[2, 4], &mss.to_be_bytes()[..]].concat()),
            TcpOption::WindowScale(scale) => bytes.extend([3, 3, *scale]),
            TcpOption::SackPermitted => bytes.extend([4, 2]),
            TcpOption::Sack(blocks) => {
                if at > 0 && matches!(options[at - 1], TcpOption::Timestamps { .. }) {
                    bytes.extend([1, 1]);
                }
                bytes.extend([5, (2 + 8 * blocks.len()) as u8]);
                for (left, right) in blocks {
                    bytes.extend(left.to_be_bytes());
                    bytes.extend(right.to_be_bytes());
                }
            }
            TcpOption::Timestamps { val, ecr } => {
                bytes.extend([8, 10]);
                bytes.extend(val.to_be_bytes());
                bytes.extend(ecr.to_be_bytes());
            }
            TcpOption::Other { kind, data } => {
                bytes.extend([*kind, (2 + data.len()) as u8]);
                bytes.extend(data);
            }
        }
    }
    bytes.resize(bytes.len().next_multiple_of(4), 1);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_option() -> impl Strategy<Value = TcpOption> {
        prop_oneof![
            Just(TcpOption::Nop),
            any::<u16>().prop_map(TcpOption::Mss),
            any::<u8>().prop_map(TcpOption::WindowScale),
            Just(TcpOption::SackPermitted),
            proptest::collection::vec(any::<(u32, u32)>(), 1..3).prop_map(TcpOption::Sack),
            any::<(u32, u32)>().prop_map(|(val, ecr)| TcpOption::Timestamps { val, ecr }),
            (9u8..255, proptest::collection::vec(any::<u8>(), 0..4))
                .prop_map(|(kind, data)| TcpOption::Other { kind, data }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(options in proptest::collection::vec(any_option(), 0..3)) {
            let bytes = write(&options);
            prop_assert_eq!(bytes.len() % 4, 0);
            let is_padding = |option: &TcpOption| *option == TcpOption::Nop;
            let read: Vec<_> =
                read(&bytes).into_iter().filter(|option| !is_padding(option)).collect();
            let written: Vec<_> =
                options.into_iter().filter(|option| !is_padding(option)).collect();
            prop_assert_eq!(read, written);
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&bytes);
        }
    }
}
