//! The sending end: handshake, window, timers and transmission. Loss recovery is in [`recovery`].
//!
//! Invariant: the retransmission timer is lazy. [`TcpSender::poll_timeout`] may be earlier than
//! what is due, and changes about once a timeout instead of at every acknowledgement.

mod recovery;

use super::config::{Sizes, TcpSenderConfig, WindowReduction, buffer_segments};
use super::congestion::{Ack, Controller, Window};
use super::rate::RateSampler;
use super::rtt::RttEstimator;
use super::scoreboard::{Covered, Scoreboard};
use super::segment::{Flags, Kind, SackBlocks, Segment};
use crate::packet::Ecn;
use dfcp_proto::{Duration, Instant};
use recovery::{Phase, Prr};

/// What a sender counts, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpSenderStats {
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Retransmission timeouts, of a SYN too.
    pub timeouts: u64,
    /// Recoveries that began without a timeout.
    pub recoveries: u64,
    /// Window reductions that answered an ECN echo.
    pub ecn_reductions: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// The congestion window now, segments.
    pub cwnd: f64,
    /// The slow-start threshold now, segments.
    pub ssthresh: f64,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The least round-trip time.
    pub min_rtt: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Idle,
    /// A SYN is out, or due.
    Opening,
    Open,
}

/// The sending end of one connection.
#[derive(Clone, Debug)]
pub struct TcpSender {
    mss: u32,
    handshake: bool,
    timestamps: bool,
    sack: bool,
    ecn: bool,
    limited_transmit: bool,
    reduction: WindowReduction,
    sizes: Sizes,
    connection: Connection,
    syns: u32,
    syn_due: bool,
    /// Segments of the transfer, and bytes of its last one.
    total: u32,
    last_payload: u32,
    /// Segments that the socket buffer and the receiver allow.
    send_window: u32,
    peer_window: u32,
    scoreboard: Scoreboard,
    window: Window,
    control: Controller,
    sampler: Option<RateSampler>,
    phase: Phase,
    /// The last recovery ends, or ended, when all below is acknowledged.
    recover: Option<u32>,
    /// The window was reduced when this was the next segment.
    reduced_at: u32,
    /// Whether an acknowledgement advanced since the last timeout.
    progress: bool,
    duplicates: u32,
    /// One segment may go whatever the window.
    force: bool,
    /// Whether this recovery may still send its rescue retransmission.
    rescue: bool,
    prr: Prr,
    cwr_due: bool,
    /// Segments below were sent, or acknowledged, while the window was full.
    limited_below: u32,
    rtt: RttEstimator,
    backoff: u32,
    deadline: Option<Instant>,
    timer: Option<Instant>,
    /// Pacing: when the next segment may go, and whether one waits for it.
    release: Instant,
    paced: bool,
    stats: TcpSenderStats,
}

impl TcpSender {
    /// A sender that waits for [`TcpSender::start`].
    pub fn new(config: TcpSenderConfig) -> Self {
        let (total, last_payload) = config.segments();
        let control = Controller::new(&config);
        let window = Window {
            cwnd: f64::from(config.initial_window.max(1)),
            ssthresh: config
                .initial_ssthresh
                .map_or(f64::INFINITY, |threshold| f64::from(threshold.max(2))),
        };
        Self {
            mss: config.mss.max(1),
            handshake: config.handshake,
            timestamps: config.timestamps,
            sack: config.sack,
            ecn: config.ecn,
            limited_transmit: config.limited_transmit,
            reduction: config.reduction,
            sizes: config.sizes,
            connection: Connection::Idle,
            syns: 0,
            syn_due: false,
            total,
            last_payload,
            send_window: buffer_segments(config.send_buffer, config.mss),
            peer_window: u32::MAX,
            scoreboard: Scoreboard::new(config.find_lost_retransmissions && config.sack),
            sampler: control.is_model_based().then(RateSampler::new),
            control,
            phase: Phase::Open,
            recover: None,
            reduced_at: 0,
            progress: false,
            duplicates: 0,
            force: false,
            rescue: false,
            prr: Prr::default(),
            cwr_due: false,
            limited_below: 0,
            rtt: RttEstimator::new(&config),
            backoff: 0,
            deadline: None,
            timer: None,
            release: Instant::ZERO,
            paced: false,
            stats: TcpSenderStats {
                cwnd: window.cwnd,
                ssthresh: window.ssthresh,
                ..TcpSenderStats::default()
            },
            window,
        }
    }

    /// Opens the connection. Does nothing the second time.
    pub fn start(&mut self, now: Instant) {
        if self.connection != Connection::Idle {
            return;
        }
        if self.handshake {
            self.connection = Connection::Opening;
            self.syn_due = true;
            self.arm(now);
        } else {
            self.connection = Connection::Open;
        }
    }

    /// Whether all data are acknowledged.
    pub fn is_finished(&self) -> bool {
        self.scoreboard.una() == self.total
    }

    /// The counters.
    pub fn stats(&self) -> &TcpSenderStats {
        &self.stats
    }

    /// A segment arrived.
    pub fn on_segment(&mut self, now: Instant, _ecn: Ecn, segment: &Segment) {
        match (segment.kind, self.connection) {
            (Kind::Ack, Connection::Open) => self.on_ack(now, segment),
            (Kind::SynAck, Connection::Opening) => self.on_syn_ack(now, segment),
            _ => {}
        }
    }

    fn on_syn_ack(&mut self, now: Instant, segment: &Segment) {
        self.connection = Connection::Open;
        self.syn_due = false;
        self.peer_window = segment.window.max(1);
        if self.timestamps || self.syns == 1 {
            self.rtt.update(now.saturating_since(segment.timestamp));
        }
        if self.syns > 1 {
            // RFC 5681 §3.1: a lost SYN is a sign of congestion.
            self.window.cwnd = 1.0;
        }
        self.backoff = 0;
        self.deadline = None;
        self.update_stats();
    }

    fn on_ack(&mut self, now: Instant, segment: &Segment) {
        let una = self.scoreboard.una();
        if segment.seq < una || segment.seq > self.scoreboard.next() {
            return;
        }
        self.peer_window = segment.window.max(1);
        let acked = segment.seq - una;
        let mut delivered = 0;
        let mut rtt = None;
        if acked > 0 {
            let covered = self.advance(now, segment.seq);
            rtt = self.sample_rtt(now, segment, covered);
            delivered = covered.fresh;
        }
        delivered = if self.sack {
            delivered + self.take_sacks(now, segment)
        } else {
            self.count_duplicates(acked, delivered)
        };
        let lost = self.find_losses();
        // An acknowledgement that ends a recovery does not grow the window yet.
        let repairing = self.phase == Phase::Recovery;
        self.update_phase(now, acked, delivered);
        if segment.flags.ece && self.ecn {
            self.on_ecn_echo(now);
        }
        // Only what moves the window forward lets it grow (RFC 5681 §3.1): while a lost
        // retransmission blocks it, arrivals beyond say nothing of the losses to come.
        let limited = acked > 0 && una < self.limited_below;
        let may_grow = limited && !repairing && self.phase != Phase::Recovery;
        self.update_window(now, delivered, lost, rtt, may_grow);
        if self.phase == Phase::Recovery {
            self.follow_prr(delivered);
        }
        if acked > 0 {
            self.progress = true;
            self.stats.bytes_acked += u64::from(acked) * u64::from(self.mss);
            if self.is_finished() {
                self.stats.bytes_acked -= u64::from(self.mss - self.last_payload);
            }
            self.arm(now);
        }
        self.update_stats();
    }

    #[inline]
    fn advance(&mut self, now: Instant, ack: u32) -> Covered {
        match &mut self.sampler {
            Some(sampler) => self
                .scoreboard
                .advance(ack, |seq| sampler.on_delivered(now, seq)),
            None => self.scoreboard.advance(ack, |_| {}),
        }
    }

    #[inline]
    fn sample_rtt(
        &mut self,
        now: Instant,
        segment: &Segment,
        covered: Covered,
    ) -> Option<Duration> {
        let sent = if self.timestamps {
            segment.timestamp
        } else {
            covered.sent?
        };
        let rtt = now.saturating_since(sent);
        self.rtt.update(rtt);
        self.backoff = 0;
        Some(rtt)
    }

    #[inline]
    fn update_window(
        &mut self,
        now: Instant,
        delivered: u32,
        lost: u32,
        rtt: Option<Duration>,
        may_grow: bool,
    ) {
        let min_rtt = self.rtt.min();
        let (rate, total_delivered) = match &mut self.sampler {
            Some(sampler) => (sampler.take(min_rtt), sampler.delivered()),
            None => (None, 0),
        };
        let ack = Ack {
            now,
            delivered,
            lost,
            in_flight: self.scoreboard.in_flight(),
            rtt,
            smoothed_rtt: self.rtt.smoothed().unwrap_or_default(),
            min_rtt: min_rtt.unwrap_or_default(),
            una: self.scoreboard.una(),
            next: self.scoreboard.next(),
            may_grow,
            rate,
            total_delivered,
        };
        self.control.on_ack(&mut self.window, &ack);
    }

    fn update_stats(&mut self) {
        self.stats.cwnd = self.window.cwnd;
        self.stats.ssthresh = self.window.ssthresh;
        self.stats.srtt = self.rtt.smoothed();
        self.stats.min_rtt = self.rtt.min();
    }

    /// Starts the retransmission timer anew, or stops it when nothing is out.
    #[inline]
    fn arm(&mut self, now: Instant) {
        if self.connection == Connection::Open && self.scoreboard.outstanding() == 0 {
            self.deadline = None;
            if self.is_finished() {
                self.timer = None;
            }
            return;
        }
        let deadline = now + self.rtt.rto(self.backoff);
        self.deadline = Some(deadline);
        if self.timer.is_none_or(|timer| timer > deadline) {
            self.timer = Some(deadline);
        }
    }

    /// When to call [`TcpSender::on_timeout`]; it may find that it is too early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.timer {
            Some(timer) if self.paced => Some(timer.min(self.release)),
            None if self.paced => Some(self.release),
            timer => timer,
        }
    }

    /// The time of [`TcpSender::poll_timeout`] has come.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timer = self.deadline;
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.timer = None;
        self.stats.timeouts += 1;
        if self.connection == Connection::Opening {
            self.syn_due = true;
        } else {
            self.on_retransmission_timeout(now);
        }
        self.backoff += 1;
        self.arm(now);
        self.update_stats();
    }

    /// The next segment to send, if one may go now.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Segment, Ecn)> {
        match self.connection {
            Connection::Open => {}
            Connection::Opening if self.syn_due => return Some(self.transmit_syn(now)),
            Connection::Idle | Connection::Opening => return None,
        }
        self.paced = false;
        let pacing = self.control.pacing_rate();
        if pacing.is_some() && now < self.release {
            self.paced = self.has_more();
            return None;
        }
        let (seq, again) = self.next_segment()?;
        let segment = self.transmit(now, seq, again);
        if let Some(rate) = pacing {
            self.release = self.release.max(now) + rate.time_for(segment.ip_size().into());
        }
        let ecn = if self.ecn && !again {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        };
        Some((segment, ecn))
    }

    fn transmit_syn(&mut self, now: Instant) -> (Segment, Ecn) {
        self.syn_due = false;
        self.syns += 1;
        let segment = Segment {
            timestamp: now,
            kind: Kind::Syn,
            header: self.sizes.header(Kind::Syn, self.timestamps, 0),
            ..Segment::default()
        };
        (segment, Ecn::NotEct)
    }

    #[inline]
    fn transmit(&mut self, now: Instant, seq: u32, again: bool) -> Segment {
        let in_flight = self.scoreboard.in_flight();
        let first = self.scoreboard.una();
        if again {
            self.scoreboard.send_again(now, seq);
            self.stats.retransmitted += 1;
            self.rescue &= seq + 1 != self.scoreboard.next();
        } else {
            self.scoreboard.send_new(now);
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.reserve(first, self.scoreboard.next().max(seq + 1) - 1);
            sampler.on_sent(now, seq, in_flight);
        }
        // A retransmission of the first segment has a timeout of its own.
        if self.deadline.is_none() || (again && seq == first) {
            self.arm(now);
        }
        self.force = false;
        self.prr.on_sent();
        self.stats.segments += 1;
        let cwr = !again && std::mem::take(&mut self.cwr_due);
        Segment {
            timestamp: now,
            seq,
            payload: if seq == self.total - 1 {
                self.last_payload
            } else {
                self.mss
            },
            window: 0,
            sack: SackBlocks::NONE,
            kind: Kind::Data,
            flags: Flags { ece: false, cwr },
            header: self.sizes.header(Kind::Data, self.timestamps, 0),
        }
    }

    /// Which segment may go now, and whether it went before (RFC 6675's NextSeg).
    #[inline]
    fn next_segment(&mut self) -> Option<(u32, bool)> {
        let in_flight = self.occupied();
        // Windows are far below 2^32.
        if in_flight >= self.window.cwnd as u32 && !self.force {
            self.limited_below = self.scoreboard.next();
            return None;
        }
        if let Some(seq) = self.scoreboard.next_lost() {
            return Some((seq, true));
        }
        if self.may_send_new() {
            return Some((self.scoreboard.next(), false));
        }
        if self.phase == Phase::Recovery
            && self.sack
            && let Some(seq) = self.last_resort()
        {
            return Some((seq, true));
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.on_app_limited(in_flight);
        }
        None
    }

    /// Segments that count against the window.
    #[inline]
    fn occupied(&self) -> u32 {
        if self.phase == Phase::Open && !self.limited_transmit {
            self.scoreboard.outstanding()
        } else {
            self.scoreboard.in_flight()
        }
    }

    #[inline]
    fn may_send_new(&self) -> bool {
        let next = self.scoreboard.next();
        next < self.total && self.scoreboard.outstanding() < self.send_window.min(self.peer_window)
    }

    /// Whether a segment could go but for pacing.
    fn has_more(&mut self) -> bool {
        self.next_segment().is_some()
    }
}
