//! A core whose connections count: what arrived, what is to leave, blocks to be rebuilt, a timer.

use crate::shared::{News, Waiting};
use crate::wait_list::WaitList;
use dfcp_proto::host::{Core, CoreConnection, Priority, Solve, Transmit};
use dfcp_proto::{ConnectionHandle, Duration, Instant};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A packet of a block that takes long to rebuild; all others are numbers.
pub(crate) const BLOCK: u8 = 255;

/// Which connections there were.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) lent: BTreeSet<ConnectionHandle>,
    pub(crate) back: BTreeSet<ConnectionHandle>,
    pub(crate) forgotten: BTreeSet<ConnectionHandle>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) arrived: Vec<u8>,
    pub(crate) rebuilt: usize,
    /// Packets that may leave.
    pub(crate) to_send: usize,
    pub(crate) due: Option<Instant>,
    pub(crate) expired: bool,
    pub(crate) closed: bool,
    blocks: usize,
    events: VecDeque<()>,
}

impl Counters {
    fn close(&mut self) {
        self.closed = true;
        self.events.push_back(());
    }
}

std::thread_local! {
    /// Blocks that are being rebuilt in this schedule, all of whose tasks share a thread.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// While a block is being rebuilt.
struct Running;

impl Running {
    fn start() -> Self {
        RUNNING.set(RUNNING.get() + 1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
    }
}

/// A block that takes most of the memory for such.
#[derive(Debug)]
pub(crate) struct Block;

impl Solve for Block {
    fn estimated_time(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn memory(&self) -> usize {
        crate::solver::MEMORY / 2 + 1
    }

    fn run(&mut self) {
        let _running = Running::start();
        assert_eq!(
            RUNNING.get(),
            1,
            "two take more memory than there is for them"
        );
        shuttle::thread::yield_now();
    }
}

impl CoreConnection for Counters {
    type Event = ();
    type SolveJob = Block;

    fn poll_event(&mut self) -> Option<()> {
        self.events.pop_front()
    }

    fn take_solve_job(&mut self) -> Option<Block> {
        self.blocks = self.blocks.checked_sub(1)?;
        Some(Block)
    }

    fn finish_solve(&mut self, _now: Instant, _job: Block) {
        self.rebuilt += 1;
        self.events.push_back(());
    }

    fn handle_datagram(&mut self, _: Instant, _: SocketAddr, _: u8, datagram: &mut [u8]) {
        match datagram[1] {
            BLOCK => self.blocks += 1,
            number => {
                self.arrived.push(number);
                self.events.push_back(());
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        assert!(self.due.take_if(|due| *due <= now).is_some(), "too early");
        self.expired = true;
        self.events.push_back(());
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn poll_transmit(&mut self, _: Instant, _: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        self.to_send = self.to_send.checked_sub(1)?;
        out.push(0);
        Some(Transmit {
            destination: ([127, 0, 0, 1], 1).into(),
            ecn: 0,
            size: 1,
            segment_size: None,
            elided: 0,
            priority: Priority::Data,
        })
    }

    fn coalescing_delay(&self) -> Duration {
        Duration::ZERO
    }
}

/// The first packet of a connection opens it; its first byte says which one that is.
#[derive(Debug)]
pub(crate) struct Desk {
    known: BTreeSet<u8>,
    knocking: VecDeque<ConnectionHandle>,
    account: Arc<Mutex<Account>>,
}

impl Desk {
    pub(crate) fn new(account: Arc<Mutex<Account>>) -> Self {
        Self {
            known: BTreeSet::new(),
            knocking: VecDeque::new(),
            account,
        }
    }

    /// A connection that this side begins.
    pub(crate) fn begin(&mut self, id: u8) -> ConnectionHandle {
        self.known.insert(id);
        ConnectionHandle(id.into())
    }

    fn account(&self) -> std::sync::MutexGuard<'_, Account> {
        self.account.lock().expect("nobody panics with it")
    }
}

impl Core for Desk {
    type Connection = Counters;

    fn handle_datagram(
        &mut self,
        _: Instant,
        _: SocketAddr,
        _: u8,
        datagram: &mut [u8],
    ) -> Option<ConnectionHandle> {
        let handle = ConnectionHandle(datagram[0].into());
        if self.known.insert(datagram[0]) {
            self.knocking.push_back(handle);
            return None;
        }
        Some(handle)
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _: Instant, _: usize, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn coalescing_delay(&self) -> Duration {
        Duration::ZERO
    }

    fn accept(&mut self) -> Option<ConnectionHandle> {
        self.knocking.pop_front()
    }

    fn connection(&mut self, _handle: ConnectionHandle) -> Option<&mut Counters> {
        None
    }

    fn peek(&self, _handle: ConnectionHandle) -> Option<&Counters> {
        None
    }

    fn poll_news(&mut self) -> Option<(ConnectionHandle, &mut Counters)> {
        None
    }

    fn forget(&mut self, handle: ConnectionHandle) {
        let mut account = self.account();
        assert!(account.back.contains(&handle), "forgotten while lent");
        assert!(account.forgotten.insert(handle), "forgotten twice");
    }

    fn lend(&mut self, handle: ConnectionHandle) -> Option<Box<Counters>> {
        self.account().lent.insert(handle);
        Some(Box::default())
    }

    fn learn(&mut self, _handle: ConnectionHandle, _connection: &Counters) {}

    fn take_back(&mut self, handle: ConnectionHandle, _connection: Box<Counters>) {
        assert!(self.account().back.insert(handle), "given back twice");
    }
}

/// Who waits for a connection of counters.
#[derive(Debug, Default)]
pub(crate) struct Post {
    pub(crate) readers: WaitList,
    over: bool,
}

impl Waiting for Post {
    type Core = Desk;

    fn collect(&mut self, connection: &mut Counters, _is_held: bool) -> News {
        while connection.poll_event().is_some() {
            self.readers.wake();
        }
        self.over = connection.closed;
        News::default()
    }

    fn release(&mut self, _now: Instant, connection: &mut Counters) {
        assert!(!connection.closed, "released twice");
        connection.close();
    }

    fn is_over(&self, connection: &Counters) -> bool {
        connection.closed
    }

    fn is_idle(&self, _is_held: bool) -> bool {
        self.over
    }

    fn wake(&mut self) {
        self.readers.wake();
    }
}
