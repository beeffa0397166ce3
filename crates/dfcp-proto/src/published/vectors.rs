//! The test vectors of docs/spec/published.md, which were computed from its text, not by this code.

use super::code::{Code, PacketName};
use super::config::Config;
use super::header::{HANDSHAKE, Header, Kind, PseudoHeader, Report, seal};
use super::negotiation::Offer;
use dfcp_fec::raptor::{LdpcDegrees, State};

const SPEC: &str = include_str!("../../../../docs/spec/published.md");

fn state(words: [u32; 3]) -> State {
    State::new(words[0], words[1], words[2]).expect("valid")
}

fn client() -> State {
    state([0x1111_1111, 0x2222_2222, 0x3333_3333])
}

fn server() -> State {
    state([0x4444_4444, 0x5555_5555, 0x6666_6666])
}

fn data() -> State {
    state([0xdead_beef, 0xcafe_babe, 0x8bad_f00d])
}

fn up(kind: Kind, block: u32, state: State) -> Header {
    Header {
        source: 49_152,
        destination: 7,
        block,
        state,
        kind,
        report: None,
    }
}

fn down(kind: Kind, block: u32, state: State) -> Header {
    Header {
        source: 7,
        destination: 49_152,
        ..up(kind, block, state)
    }
}

fn check(what: &str, header: &Header, payload: &[u8], pseudo: &PseudoHeader) {
    let mut packet = Vec::new();
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    seal(&mut packet, pseudo);
    let hex: String = packet.iter().map(|b| format!("{b:02x}")).collect();
    let row = SPEC
        .lines()
        .find(|row| row.starts_with(&format!("| {what}")));
    let row = row.unwrap_or_else(|| panic!("no row for {what}"));
    assert!(row.ends_with(&format!("| `{hex}` |")), "{row}\n{hex}");
    assert_eq!(Header::parse(&packet, pseudo), Ok((*header, payload)));
}

#[test]
fn packets_are_those_of_the_specification() {
    let udp = &PseudoHeader::Udp;
    let mut offer = Offer::new(&Config::default(), client()).expect("within limits");
    offer.window = 1054;
    let mut payload = Vec::new();
    offer.emit(None, &mut payload);
    check(
        "SYN: the published",
        &up(Kind::Syn, 0, client()),
        &payload,
        udp,
    );
    let mut weighted = offer.clone();
    if let Code::Raptor(code) = &mut weighted.code {
        code.ldpc_degrees = LdpcDegrees::Weighted(vec![(3, 6), (5, 3), (12, 1)]);
    }
    payload.clear();
    weighted.emit(None, &mut payload);
    check("SYN: the same", &up(Kind::Syn, 0, client()), &payload, udp);
    offer.window = 500;
    payload.clear();
    offer.emit(Some(client()), &mut payload);
    check(
        "its SYNACK",
        &down(Kind::SynAck, 0, server()),
        &payload,
        udp,
    );
    let ack = up(Kind::Ack, HANDSHAKE, server());
    check("ACK of SYNACK", &ack, &[], udp);
    let kind = Kind::Data {
        echo: true,
        short: false,
    };
    let symbols = [1, 2, 3, 4, 5, 6, 7, 8];
    check("data of block 3", &up(kind, 3, data()), &symbols, udp);
    let report = Report {
        packets: 49,
        bytes: 72_520,
        ce: 2,
        clock: 1_000_000_000,
        decoded: 3,
        limit: 1059,
        missing: 0,
    };
    let block_ack = Header {
        report: Some(report),
        ..down(Kind::BlockAck { more: false }, 3, data())
    };
    check("its block ACK", &block_ack, &[], udp);
    check("FIN after 4", &up(Kind::Fin, 4, client()), &[], udp);
    check("ACK of FIN", &down(Kind::Ack, 4, client()), &[], udp);
    let ip = PseudoHeader::Ip {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
    };
    check("the same FIN", &up(Kind::Fin, 4, client()), &[], &ip);
    check("RST in answer", &down(Kind::Rst, 0, client()), &[5], udp);
}

#[test]
fn packets_of_rc_udp_are_those_of_the_specification() {
    let udp = &PseudoHeader::Udp;
    let config = Config::rc_udp(Some(10_000_000));
    let offer = Offer::new(&config, client()).expect("within limits");
    let mut payload = Vec::new();
    offer.emit(None, &mut payload);
    check("SYN of RC-UDP", &up(Kind::Syn, 0, client()), &payload, udp);
    let name = PacketName {
        block: 3,
        index: 1000,
        symbols: 1,
        useful: 1_000_000,
    };
    let state = config.code.words(client(), name);
    let kind = Kind::Data {
        echo: false,
        short: false,
    };
    let symbols = [1, 2, 3, 4, 5, 6, 7, 8];
    check(
        "data of block 3 of RC-UDP",
        &up(kind, 3, state),
        &symbols,
        udp,
    );
}
