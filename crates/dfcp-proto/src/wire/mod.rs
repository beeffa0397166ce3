//! The sealed wire: packets that cross the network and the frames inside them.
//!
//! Specified in `docs/spec/wire.md`. Parsing is total: any byte string gives a value or a
//! [`WireError`], never a panic, and borrows from the datagram instead of copying it.

mod ack;
pub mod checksum;
mod codec;
mod frame;
mod header;
mod params;
mod sack;
mod symbol;

pub use ack::{AckHead, AckRanges};
pub use codec::{Reader, VarInt, VarIntTooLarge, WireError, varint_len, write_varint};
pub use frame::{
    BlockReport, Frame, FrameIter, PATH_DATA_LEN, ROUND_TRIP_LEN, datagram_overhead, part_overhead,
};
pub use header::{
    Ack, CID_LEN, COOKIE_LEN, ConnectionId, Packet, RESET_KEY_LEN, RESET_LEN, RESET_TOKEN_LEN,
    Retry, SEALED_HEADER_LEN, Sealed, Syn, SynAck, TAG_LEN, VERSION, emit_reset,
    emit_sealed_header, emit_version,
};
pub use params::{TransportParams, VIRTUAL_PAYLOAD};
pub use sack::SackReport;
pub use symbol::{
    BlockLen, SymbolHeader, emit_virtual_symbol, esi_space, symbol_overhead, virtual_symbol_len,
    virtual_symbol_size,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The vectors of docs/spec/wire.md, which were computed from its text, not by this code.
    #[test]
    fn specified_vectors() {
        let mut out = Vec::new();
        let ranges = [(90, 100), (50, 88)];
        let head = AckHead {
            largest: 100,
            received_at_us: 5000,
            delay_us: 20,
            ce: 3,
        };
        Frame::emit_ack(&mut out, head, ranges.into_iter(), 100);
        assert_eq!(hex(&out), "02406453881403020a0026");
        let mut out = Vec::new();
        let ranges = [(99, 100), (95, 96), (93, 93), (85, 87)];
        Frame::emit_shortest_ack(&mut out, head, ranges.into_iter(), 100);
        assert_eq!(hex(&out), "23406453881403025970");
        let mut out = Vec::new();
        Frame::emit_blocks(&mut out, 5, 1000, [(1000, 3), (2000, 0)].into_iter(), 100);
        assert_eq!(hex(&out), "030543e802000343e800");
        let mut out = Vec::new();
        let header = SymbolHeader {
            scheme: dfcp_fec::SchemeId::Dense,
            channel: 0,
            offset: 20_000,
            block: BlockLen::Bytes(600_000),
            esi: 9,
        };
        header.emit(&mut out);
        assert_eq!(hex(&out), "090080004e20800927c0000009");
        let block = BlockLen::new(150_000, 1430);
        let mut out = Vec::new();
        SymbolHeader { block, ..header }.emit(&mut out);
        assert_eq!(hex(&out), "190080004e2068960009");
        let mut out = Vec::new();
        let path = crate::rate::PathReport {
            receive_rate: 125_000.0,
            loss_event_rate: 0.0,
        };
        let sack = SackReport::new(path, 4, 63, 5000);
        Frame::emit_sack(&mut out, &sack, [6000..8000, 9000..9500].into_iter(), 100);
        assert_eq!(hex(&out), "058001e84800000000043f53880243e847d043e841f4");
        for (frame, bytes) in [
            (Frame::Ping, "01"),
            (Frame::ImmediateAck, "22"),
            (
                Frame::RoundTrip {
                    number: 7,
                    rtt_us: 100_000,
                },
                "0400000007000186a0",
            ),
            (Frame::FeedbackRate(6250), "06586a"),
            (Frame::FirstWindow(65_536), "2480010000"),
            (
                Frame::Part {
                    symbol_len: 1430,
                    at: 715,
                },
                "07459642cb",
            ),
            (Frame::Datagram(b"tick"), "17047469636b"),
            (Frame::MaxData(1 << 30), "10c000000040000000"),
            (
                Frame::MaxStreamData {
                    channel: 4,
                    limit: 70_000,
                },
                "110480011170",
            ),
            (
                Frame::Fin {
                    channel: 2,
                    size: 600,
                },
                "12024258",
            ),
            (
                Frame::Reset {
                    channel: 0,
                    code: 300.into(),
                    charged: 900,
                },
                "1300412c4384",
            ),
            (
                Frame::Stop {
                    channel: 1,
                    code: 4.into(),
                },
                "140104",
            ),
            (
                Frame::PathChallenge([0, 1, 2, 3, 4, 5, 6, 7]),
                "200001020304050607",
            ),
            (
                Frame::PathResponse([7, 6, 5, 4, 3, 2, 1, 0]),
                "210706050403020100",
            ),
            (
                Frame::Close {
                    code: 256.into(),
                    reason: b"bye",
                },
                "15410003627965",
            ),
            (
                Frame::Skip {
                    channel: 2,
                    offset: 1500,
                    len: 1430,
                    charged: 1686,
                },
                "160245dc45964696",
            ),
        ] {
            let mut out = Vec::new();
            frame.emit(&mut out);
            assert_eq!(hex(&out), bytes, "{frame:?}");
            assert_eq!(FrameIter::new(&out).next(), Some(Ok(frame)));
        }
        let spec = crate::block::block_spec(dfcp_fec::SchemeId::Dense, 2, 183_040, 1430, 1430);
        assert_eq!(spec.map(|s| s.seed()), Ok(0x3c6c3872fe94f82a));
    }
}
