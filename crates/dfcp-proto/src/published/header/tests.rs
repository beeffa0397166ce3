use super::*;
use proptest::prelude::*;

const KINDS: [Kind; 13] = [
    Kind::Syn,
    Kind::SynAck,
    Kind::Ack,
    Kind::Fin,
    Kind::FinAck,
    Kind::Rst,
    data(false, false),
    data(true, false),
    data(false, true),
    data(true, true),
    Kind::BlockAck { more: false },
    Kind::BlockAck { more: true },
    Kind::Echo,
];

const fn data(echo: bool, short: bool) -> Kind {
    Kind::Data { echo, short }
}

fn state() -> State {
    State::new(0x0102_0304, 0x1122_3344, 0xaabb_ccdd).expect("valid")
}

fn header(kind: Kind) -> Header {
    Header {
        source: 0x1234,
        destination: 0x5678,
        block: 9,
        state: state(),
        kind,
        report: None,
    }
}

fn packet(header: &Header, payload: &[u8], pseudo: &PseudoHeader) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    out.extend_from_slice(payload);
    seal(&mut out, pseudo);
    out
}

fn payload(kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Syn | Kind::SynAck | Kind::Data { .. } => (0..200).map(|b| b as u8).collect(),
        Kind::Rst => vec![3],
        _ => Vec::new(),
    }
}

const UDP_ONLY: PseudoHeader = PseudoHeader::Udp;

fn over_ip(last: u8) -> PseudoHeader {
    PseudoHeader::Ip {
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 0, last]),
    }
}

#[test]
fn exactly_the_specified_combinations_of_flags_have_a_meaning() {
    let meaning: Vec<u8> = (0..=255)
        .filter(|&f| Kind::from_flags(f).is_some())
        .collect();
    let mut listed = KINDS.map(Kind::flags);
    listed.sort_unstable();
    assert_eq!(meaning, listed);
    for kind in KINDS {
        assert_eq!(Kind::from_flags(kind.flags()), Some(kind));
    }
}

#[test]
fn a_packet_that_is_only_looked_at_is_what_it_says() {
    for kind in KINDS {
        let bytes = packet(&header(kind), &payload(kind), &UDP_ONLY);
        assert_eq!(Header::peek(&bytes), Some((kind, 9)));
        assert_eq!(Header::peek(&bytes[..21]), None, "cut before the flags");
    }
}

#[test]
fn each_broken_rule_has_its_error() {
    let good = packet(&header(data(true, false)), &[1, 2, 3], &UDP_ONLY);
    assert!(Header::parse(&good, &UDP_ONLY).is_ok());
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        seal(&mut bad, &UDP_ONLY);
        Header::parse(&bad, &UDP_ONLY).map(|_| ())
    };
    assert_eq!(with(20, 0x50), Err(HeaderError::Offset), "five words");
    assert_eq!(with(20, 0x70), Err(HeaderError::Length), "beyond the end");
    assert_eq!(with(20, 0x61), Err(HeaderError::Flags), "reserved");
    assert_eq!(with(21, 0x90), Err(HeaderError::Flags), "reserved flag");
    assert_eq!(with(21, 0x02), Err(HeaderError::Length), "ACK with payload");
    for (word, least) in [(8, 2), (12, 8), (16, 16)] {
        let mut small = good.clone();
        small[word..word + 4].copy_from_slice(&u32::to_be_bytes(least - 1));
        seal(&mut small, &UDP_ONLY);
        let error = Header::parse(&small, &UDP_ONLY).map(|_| ());
        assert_eq!(error, Err(HeaderError::State), "word at {word}");
        small[word..word + 4].copy_from_slice(&u32::to_be_bytes(least));
        seal(&mut small, &UDP_ONLY);
        assert!(Header::parse(&small, &UDP_ONLY).is_ok());
    }
    let empty = packet(&header(data(false, false)), &[], &UDP_ONLY);
    let error = Header::parse(&empty, &UDP_ONLY).map(|_| ());
    assert_eq!(error, Err(HeaderError::Length), "data without data");
    // Options belong to ACKs that report.
    let long = [0; REPORT_LEN + 4];
    let mut options = packet(&header(data(false, false)), &long, &UDP_ONLY);
    options[20] = 0xf0;
    seal(&mut options, &UDP_ONLY);
    let error = Header::parse(&options, &UDP_ONLY).map(|_| ());
    assert_eq!(error, Err(HeaderError::Offset));
}

#[test]
fn the_checksum_covers_header_prefix_length_and_over_ip_the_addresses() {
    let pseudo = over_ip(2);
    let sent = packet(&header(data(false, false)), &[7; 200], &pseudo);
    let read = |bytes: &[u8], pseudo: &PseudoHeader| Header::parse(bytes, pseudo).map(|_| ());
    assert_eq!(read(&sent, &pseudo), Ok(()));
    for at in 0..HEADER_LEN + CHECKSUM_PREFIX {
        let mut bad = sent.clone();
        bad[at] ^= 0x10;
        assert!(read(&bad, &pseudo).is_err(), "byte {at}");
    }
    let mut beyond = sent.clone();
    beyond[HEADER_LEN + CHECKSUM_PREFIX] ^= 0x10;
    assert_eq!(read(&beyond, &pseudo), Ok(()), "partial coverage");
    let shorter = &sent[..sent.len() - 1];
    assert_eq!(read(shorter, &pseudo), Err(HeaderError::Checksum));
    assert_eq!(read(&sent, &over_ip(3)), Err(HeaderError::Checksum));
    assert_eq!(read(&sent, &UDP_ONLY), Err(HeaderError::Checksum));
}

#[test]
fn an_address_of_ipv4_mapped_into_ipv6_counts_as_ipv4() {
    let mapped = PseudoHeader::Ip {
        source: "::ffff:10.0.0.1".parse().expect("an address"),
        destination: "::ffff:10.0.0.2".parse().expect("an address"),
    };
    let sent = packet(&header(Kind::Fin), &[], &over_ip(2));
    assert!(Header::parse(&sent, &mapped).is_ok());
}

fn any_state() -> impl Strategy<Value = State> {
    (2u32.., 8u32.., 16u32..).prop_map(|(a, b, c)| State::new(a, b, c).expect("valid"))
}

fn any_header() -> impl Strategy<Value = Header> {
    let report = (any::<[u32; 5]>(), any::<[u64; 2]>()).prop_map(
        |([packets, ce, decoded, limit, missing], [bytes, clock])| Report {
            packets,
            bytes,
            ce,
            clock,
            decoded,
            limit,
            missing,
        },
    );
    let ports = any::<(u16, u16, u32)>();
    let kind = prop::sample::select(KINDS.to_vec());
    (ports, any_state(), kind, prop::option::of(report)).prop_map(
        |((source, destination, block), state, kind, report)| Header {
            source,
            destination,
            block,
            state,
            kind,
            report: report.filter(|_| kind.may_report()),
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(header in any_header()) {
        let payload = payload(header.kind);
        let bytes = packet(&header, &payload, &UDP_ONLY);
        prop_assert_eq!(Header::parse(&bytes, &UDP_ONLY), Ok((header, &payload[..])));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Header::parse(&bytes, &UDP_ONLY);
        // As far as the checksum: what follows is reached by sealed garbage only.
        let mut sealed = bytes;
        seal(&mut sealed, &UDP_ONLY);
        if let Ok((header, payload)) = Header::parse(&sealed, &UDP_ONLY) {
            prop_assert_eq!(packet(&header, payload, &UDP_ONLY), sealed);
        }
    }

    #[test]
    fn any_change_within_16_bits_is_noticed(at in 0usize..88, xor in 1u8..) {
        let mut bytes = packet(&header(data(true, false)), &[9; 64], &UDP_ONLY);
        bytes[at] ^= xor;
        prop_assert!(Header::parse(&bytes, &UDP_ONLY).is_err());
    }
}
