//! Whole endpoints.

use crate::core::{Account, BLOCK, Desk, Post};
use crate::error::Error;
use crate::in_many_orders;
use crate::line::{Handle, View};
use crate::shared::Shared;
use crate::socket::{Net, Socket};
use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::thread;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;

struct Bench {
    net: Arc<Net>,
    shared: Arc<Shared<Post>>,
    account: Arc<Mutex<Account>>,
}

impl Bench {
    fn new() -> Self {
        let net = Arc::new(Net::default());
        let account = Arc::new(Mutex::new(Account::default()));
        let shared = Shared::start(Desk::new(account.clone()), Socket::at(net.clone()));
        Self {
            net,
            shared,
            account,
        }
    }

    fn connect(&self, id: u8) -> Handle<Post> {
        let begun = self.shared.connect(|_, desk| Ok(desk.begin(id)));
        begun.expect("the endpoint is open")
    }

    fn close(&self) {
        self.shared.act(|_, state| state.close());
    }

    /// Closes, and waits for all tasks: each must end, give its connection back, and leave nothing that
    /// holds the endpoint.
    fn end(self) {
        self.close();
        let tasks = self.shared.runtime.clone();
        let shared = Arc::downgrade(&self.shared);
        drop(self.shared);
        tasks.join();
        let account = self.account.lock().expect("nobody panics with it");
        assert_eq!(account.lent, account.forgotten, "some are still lent");
        assert!(shared.upgrade().is_none(), "something holds the endpoint");
    }
}

/// Reads until the connection has what `is_enough` wants.
async fn read(
    view: &View<Post>,
    mut is_enough: impl FnMut(&mut crate::core::Counters) -> bool,
) -> Result<(), Error> {
    poll_fn(|context| {
        view.poll(|_, connection, post| {
            if is_enough(connection) {
                return Poll::Ready(Ok(()));
            }
            post.readers.register(context);
            Poll::Pending
        })
    })
    .await
}

fn accepting(bench: &Bench) -> JoinHandle<usize> {
    let shared = bench.shared.clone();
    spawn(async move {
        let mut accepted = 0;
        while shared.accept().await.is_some() {
            accepted += 1;
        }
        accepted
    })
}

fn join<T>(task: JoinHandle<T>) -> T {
    block_on(task).expect("does not panic")
}

#[test]
fn every_client_is_accepted_by_one_or_released() {
    in_many_orders(|| {
        let bench = Bench::new();
        let acceptors = [(); 2].map(|()| accepting(&bench));
        let net = bench.net.clone();
        let clients = thread::spawn(move || {
            net.arrive(&[[1, 0], [2, 0]]);
            net.arrive(&[[3, 0]]);
        });
        let shared = bench.shared.clone();
        let closing = thread::spawn(move || shared.act(|_, state| state.close()));
        clients.join().expect("no panic");
        closing.join().expect("no panic");
        let accepted: usize = acceptors.map(join).iter().sum();
        let lent = bench.account.lock().expect("no panic").lent.len();
        assert!(accepted <= lent);
        bench.end();
    });
}

#[test]
fn all_clients_of_an_open_endpoint_are_accepted() {
    in_many_orders(|| {
        let bench = Bench::new();
        let shared = bench.shared.clone();
        let acceptors = [1, 2].map(|count| {
            let shared = shared.clone();
            spawn(async move {
                for _ in 0..count {
                    assert!(shared.accept().await.is_some(), "nobody closed it");
                }
            })
        });
        bench.net.arrive(&[[1, 0], [2, 0]]);
        bench.net.arrive(&[[3, 0]]);
        acceptors.into_iter().for_each(join);
        drop(shared);
        bench.end();
    });
}

#[test]
fn packets_come_in_order_and_all_readers_learn_of_each() {
    in_many_orders(|| {
        let bench = Bench::new();
        let [one, two] = [1, 2].map(|id| bench.connect(id));
        let readers = [(); 2].map(|()| {
            let view = one.view();
            spawn(async move {
                let all = |c: &mut crate::core::Counters| {
                    assert!(c.arrived.is_sorted(), "out of order: {:?}", c.arrived);
                    c.arrived.len() == 4
                };
                read(&view, all).await.expect("it is held");
            })
        });
        // Somebody has the connection in hand now and then.
        let other = one.clone();
        let busy = thread::spawn(move || (0..2).for_each(|_| other.act(|_, _, _| ())));
        bench.net.arrive(&[[1, 1]]);
        bench.net.arrive(&[[1, 2], [2, 1], [1, 3]]);
        bench.net.arrive(&[[1, 4]]);
        readers.into_iter().for_each(join);
        busy.join().expect("no panic");
        drop((one, two));
        bench.end();
    });
}

#[test]
fn what_was_flushed_has_left() {
    in_many_orders(|| {
        let bench = Bench::new();
        // More than may wait for the reader.
        bench.shared.unread.store(2 << 20, Ordering::Relaxed);
        let held = bench.connect(1);
        let net = bench.net.clone();
        let room = thread::spawn(move || (0..3).for_each(|_| net.make_room(1)));
        held.act(|_, connection, _| connection.to_send = 3);
        block_on(bench.shared.flush());
        assert_eq!(bench.shared.traffic().packets_sent, 3);
        room.join().expect("no panic");
        drop(held);
        bench.end();
    });
}

#[test]
fn timers_expire() {
    in_many_orders(|| {
        let bench = Bench::new();
        let held = [1, 2].map(|id| bench.connect(id));
        let readers = held.each_ref().map(|held| {
            let view = held.view();
            spawn(async move { read(&view, |c| c.expired).await.expect("it is held") })
        });
        for held in &held {
            let later = dfcp_proto::Duration::from_micros(100);
            held.act(|now, connection, _| connection.due = Some(now + later));
        }
        readers.into_iter().for_each(join);
        drop(held);
        bench.end();
    });
}

#[test]
fn blocks_are_rebuilt_beside_and_their_reader_learns_it() {
    in_many_orders(|| {
        let bench = Bench::new();
        let [one, two] = [1, 2].map(|id| bench.connect(id));
        bench.net.arrive(&[[1, BLOCK], [2, BLOCK], [1, BLOCK]]);
        let view = one.view();
        let reader = spawn(async move {
            let both = |c: &mut crate::core::Counters| c.rebuilt == 2;
            read(&view, both).await.expect("it is held");
        });
        // Over before its block is rebuilt, or not.
        drop(two);
        join(reader);
        drop(one);
        bench.end();
    });
}

#[test]
fn the_last_hold_releases_and_all_is_idle_then() {
    in_many_orders(|| {
        let bench = Bench::new();
        let held = bench.connect(1);
        let holders = [(); 2].map(|()| {
            let held = held.clone();
            thread::spawn(move || {
                let again = held.clone();
                drop(held);
                again.look(|connection, _| assert!(!connection.closed, "it is held"));
            })
        });
        drop(held);
        let shared = bench.shared.clone();
        let idle = spawn(async move { shared.wait_idle().await });
        join(idle);
        holders
            .into_iter()
            .for_each(|h| h.join().expect("no panic"));
        bench.end();
    });
}

/// Who looks at nothing but the connection's end does not hold it.
#[test]
fn a_dismissed_connection_is_given_back_once() {
    in_many_orders(|| {
        let bench = Bench::new();
        let held = bench.connect(1);
        let view = held.view();
        let dismissing = thread::spawn(move || {
            view.dismiss(|_, desk, id| dfcp_proto::host::Core::forget(desk, id))
        });
        bench.net.arrive(&[[1, 1]]);
        drop(held);
        dismissing.join().expect("no panic");
        bench.end();
    });
}

#[test]
fn a_reader_learns_of_the_end() {
    in_many_orders(|| {
        let bench = Bench::new();
        let held = bench.connect(1);
        let view = held.view();
        let reader = spawn(async move { assert!(read(&view, |_| false).await.is_err()) });
        bench.shared.end(io::ErrorKind::Other);
        join(reader);
        drop(held);
        bench.end();
    });
}

#[test]
fn everyone_who_waits_learns_of_the_end() {
    in_many_orders(|| {
        let bench = Bench::new();
        let held = bench.connect(1);
        // No room in the socket, and more to come.
        held.act(|now, connection, _| {
            connection.to_send = 2;
            connection.due = Some(now + dfcp_proto::Duration::from_millis(1));
        });
        let view = held.view();
        let reader = spawn(async move { assert!(read(&view, |_| false).await.is_err()) });
        let acceptor = accepting(&bench);
        let shared = bench.shared.clone();
        let flushing = spawn(async move { shared.flush().await });
        let shared = bench.shared.clone();
        let idle = spawn(async move { shared.wait_idle().await });
        let shared = bench.shared.clone();
        let connecting = thread::spawn(move || {
            let begun = shared.connect(|_, desk| Ok(desk.begin(2)));
            if let Ok(held) = begun {
                held.act(|_, connection, _| connection.to_send = 1);
            }
        });
        bench.net.arrive(&[[3, 0], [1, BLOCK]]);
        bench.shared.end(io::ErrorKind::Other);
        join(reader);
        assert!(join(acceptor) <= 1);
        join(flushing);
        join(idle);
        connecting.join().expect("no panic");
        drop(held);
        bench.end();
    });
}
