//! Opening: loss, corruption, silence, refusal.

use crate::common::{MS, SECOND, finish, link, lossy, pair, small};
use dfcp_proto::published::{Carrier, Config, Endpoint, Error, Event, Listen, State};
use dfcp_proto::{Instant, Payload};
use dfcp_sim::published_pair::PORT;
use dfcp_sim::{LinkConfig, PublishedPair, PublishedPairConfig, Side};
use std::net::IpAddr;
use std::sync::Arc;

fn closed_with(pair: &PublishedPair, side: Side) -> Option<Option<Error>> {
    let events = &pair.hosts[side as usize].events;
    events.iter().find_map(|e| match e {
        Event::Closed(error) => Some(error.clone()),
        _ => None,
    })
}

#[test]
fn a_clean_handshake_takes_one_round_trip_and_a_half() {
    let mut pair = pair(link(20), small(), 1);
    let begun = pair.now;
    assert!(pair.establish(MS(40)));
    let took = pair.now.saturating_since(begun);
    assert!(took >= MS(30) && took < MS(31), "{took:?}");
    assert_eq!(pair.hosts[0].packets + pair.hosts[1].packets, 3);
}

#[test]
fn handshakes_under_loss_and_corruption_succeed_or_fail_on_both_sides() {
    let mut established = 0;
    for seed in 1..=40 {
        let path = LinkConfig {
            corrupt: 0.1,
            duplicate: 0.2,
            jitter: MS(30).into(),
            ..lossy(20, 0.3)
        };
        let mut pair = pair(path, small(), seed);
        pair.connect();
        pair.run_until(70 * SECOND, |pair| pair.states()[0] != State::SynSent);
        established += usize::from(pair.states()[0] == State::Established);
        finish(&mut pair, Side::Client);
        // Whatever came of it, both ends are rid of it in the end.
        let mut asked = false;
        let quiet = pair.run_until(300 * SECOND, |pair| {
            if !asked && pair.states()[1] == State::CloseWait {
                asked = true;
                finish(pair, Side::Server);
            }
            pair.next_event().is_none()
        });
        assert!(quiet, "seed {seed}: {:?}", pair.states());
        assert_eq!(pair.states(), [State::Closed; 2], "seed {seed}");
    }
    assert!(established >= 36, "{established} of 40");
}

#[test]
fn a_silent_peer_is_given_up_after_five_retries() {
    let mut pair = pair(lossy(20, 1.0), small(), 1);
    let begun = pair.now;
    pair.connect();
    pair.run_until(100 * SECOND, |pair| pair.states()[0] == State::Closed);
    assert_eq!(pair.now.saturating_since(begun), 63 * SECOND);
    assert_eq!(pair.hosts[0].packets, 6);
    assert_eq!(
        closed_with(&pair, Side::Client),
        Some(Some(Error::Unreachable))
    );
}

#[test]
fn a_half_open_server_gives_up_in_time_and_its_application_never_hears_of_it() {
    let mut pair = pair(link(20), small(), 1);
    pair.connect();
    assert!(pair.run_until(SECOND, |pair| pair.hosts[1].packets == 1));
    let now = pair.now;
    for link in &mut pair.links {
        link.set_config(now, lossy(20, 1.0));
    }
    pair.run_until(100 * SECOND, |pair| {
        pair.hosts[1].endpoint.poll_timeout().is_none()
    });
    assert_eq!(pair.now.saturating_since(now), 63 * SECOND);
    assert!(pair.hosts[1].connection.is_none());
    // Nobody has shown to be at that address.
    let (sent, came) = (pair.hosts[1].ip_bytes, pair.hosts[0].ip_bytes);
    assert!(pair.hosts[1].packets > 1, "it tried again");
    assert!(sent <= 3 * came, "{sent} for {came}");
}

#[test]
fn data_call_for_the_ack_that_was_lost() {
    let mut pair = pair(link(20), small(), 1);
    pair.connect();
    assert!(pair.run_until(SECOND, |pair| pair.hosts[1].packets == 1));
    let now = pair.now;
    pair.links[0].set_config(now, lossy(20, 1.0));
    assert!(pair.run_until(SECOND, |pair| pair.states()[0] == State::Established));
    let now = pair.now;
    pair.links[0].set_config(now, link(20));
    let client = pair.connection(Side::Client);
    assert_eq!(client.write(now, &[7; 40_000]), Ok(40_000));
    pair.flush();
    assert!(pair.run_until(SECOND, |pair| pair.states()[1] == State::Established));
    let took = pair.now.saturating_since(now);
    assert!(took < MS(100), "not by the timer: {took:?}");
}

#[test]
fn a_port_where_nobody_listens_answers_rst() {
    let mut pair = pair(link(20), small(), 1);
    let (now, remote) = (pair.now, pair.hosts[1].address);
    let client = &mut pair.hosts[0].endpoint;
    let handle = client.connect(now, remote, PORT + 1, Arc::new(small()));
    pair.hosts[0].connection = Some(handle.expect("a port"));
    pair.flush();
    pair.run_until(SECOND, |pair| pair.states()[0] == State::Closed);
    assert_eq!(closed_with(&pair, Side::Client), Some(Some(Error::Reset)));
}

#[test]
fn sizes_only_and_bytes_do_not_connect() {
    let mut config = PublishedPairConfig::symmetric(link(20), small(), 1);
    config.configs[0].payload = Payload::Virtual;
    let mut pair = PublishedPair::new(config);
    pair.connect();
    pair.run_until(SECOND, |pair| pair.states()[0] == State::Closed);
    let error = closed_with(&pair, Side::Client);
    assert!(
        matches!(error, Some(Some(Error::Parameters(_)))),
        "{error:?}"
    );
    assert_eq!(pair.hosts[1].endpoint.stats().bad_parameters, 1);
}

#[test]
fn a_full_server_says_so() {
    let mut config = PublishedPairConfig::symmetric(link(20), small(), 1);
    config.max_connections = 1;
    let mut pair = PublishedPair::new(config);
    assert!(pair.establish(SECOND));
    pair.connect();
    pair.hosts[0].events.clear();
    pair.run_until(SECOND, |pair| pair.states()[0] == State::Closed);
    let error = closed_with(&pair, Side::Client);
    assert!(
        matches!(error, Some(Some(Error::Parameters(_)))),
        "{error:?}"
    );
    assert_eq!(pair.hosts[1].endpoint.stats().syn_refused, 1);
}

#[test]
fn over_ip_the_checksum_covers_the_addresses() {
    let (client_ip, server_ip) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let config = Arc::new(Config {
        carrier: Carrier::Ip,
        ..small()
    });
    let listen = Listen {
        port: PORT,
        config: config.clone(),
        max_connections: 4,
        memory: u64::MAX,
    };
    let mut client = Endpoint::new(None, 1).over_ip(client_ip);
    let mut server = Endpoint::new(Some(listen), 2).over_ip(server_ip);
    let now = Instant::from_nanos(1);
    let (to_server, to_client) = ((server_ip, 0).into(), (client_ip, 0).into());
    let handle = client
        .connect(now, to_server, PORT, config)
        .expect("a port");
    let mut syn = Vec::new();
    client.poll_transmit(now, 1, &mut syn).expect("a SYN");
    server.handle_packet(now, (IpAddr::from([10, 0, 0, 9]), 0).into(), 0, &syn);
    assert_eq!(server.stats().bad_checksum, 1, "another source");
    server.handle_packet(now, to_client, 0, &syn);
    for _ in 0..2 {
        let mut packet = Vec::new();
        if server.poll_transmit(now, 1, &mut packet).is_some() {
            client.handle_packet(now, to_server, 0, &packet);
        }
        packet.clear();
        if client.poll_transmit(now, 1, &mut packet).is_some() {
            server.handle_packet(now, to_client, 0, &packet);
        }
    }
    let state = client.connection(handle).expect("it is there").state();
    assert_eq!(state, State::Established);
    let accepted = server.accept().expect("the client is in");
    assert_eq!(server.peek(accepted).map(|c| c.remote()), Some(to_client));
}

/// Endpoints of one address, each of which gets every packet to it.
struct Shared {
    address: IpAddr,
    endpoints: Vec<Endpoint>,
}

impl Shared {
    fn new(address: [u8; 4], endpoints: Vec<Endpoint>) -> Self {
        let address = IpAddr::from(address);
        let over_ip = endpoints.into_iter().map(|e| e.over_ip(address));
        Self {
            address,
            endpoints: over_ip.collect(),
        }
    }

    /// Everything that may be sent now reaches every endpoint of the other address.
    fn send(&mut self, now: Instant, others: &mut Self) -> bool {
        let mut sent = false;
        for endpoint in &mut self.endpoints {
            let mut packet = Vec::new();
            while endpoint.poll_transmit(now, 1, &mut packet).is_some() {
                sent = true;
                for other in &mut others.endpoints {
                    other.handle_packet(now, (self.address, 0).into(), 0, &packet);
                }
                packet.clear();
            }
        }
        sent
    }

    fn resets(&self) -> u64 {
        self.endpoints.iter().map(|e| e.stats().resets_sent).sum()
    }
}

#[test]
fn over_ip_endpoints_of_one_address_leave_each_others_connections_alone() {
    let config = Arc::new(Config {
        carrier: Carrier::Ip,
        ..small()
    });
    let listen = |port| Listen {
        port,
        config: config.clone(),
        max_connections: 4,
        memory: u64::MAX,
    };
    let servers =
        [(PORT, 3), (PORT + 1, 4)].map(|(port, seed)| Endpoint::new(Some(listen(port)), seed));
    let mut clients = Shared::new(
        [10, 0, 0, 1],
        vec![Endpoint::new(None, 1), Endpoint::new(None, 2)],
    );
    let mut servers = Shared::new([10, 0, 0, 2], servers.into());
    let now = Instant::from_nanos(1);
    let remote = (servers.address, 0).into();
    let open = |clients: &mut Shared, at: usize, port| {
        let connected = clients.endpoints[at].connect(now, remote, port, config.clone());
        connected.expect("a port is free")
    };
    let exchange = |clients: &mut Shared, servers: &mut Shared| {
        while clients.send(now, servers) | servers.send(now, clients) {}
    };
    let handles = [0, 1].map(|at| open(&mut clients, at, PORT + at as u16));
    exchange(&mut clients, &mut servers);
    let states = |clients: &Shared| {
        let states = (0..2).map(|at| clients.endpoints[at].peek(handles[at]).map(|c| c.state()));
        states.collect::<Vec<_>>()
    };
    assert_eq!(states(&clients), [Some(State::Established); 2]);
    assert_eq!((clients.resets(), servers.resets()), (0, 0));

    // Nobody listens there, and everybody keeps silent; who does listen answers for its port.
    let nowhere = open(&mut clients, 0, PORT + 2);
    exchange(&mut clients, &mut servers);
    let state = clients.endpoints[0].peek(nowhere).map(|c| c.state());
    assert_eq!(state, Some(State::SynSent));
    servers.endpoints[0] = Endpoint::new(Some(listen(PORT)), 5).over_ip(servers.address);
    for (endpoint, handle) in clients.endpoints.iter_mut().zip(handles) {
        endpoint
            .connection(handle)
            .expect("it is there")
            .finish(now);
    }
    exchange(&mut clients, &mut servers);
    assert_eq!(
        states(&clients),
        [Some(State::Closed), Some(State::FinWait2)]
    );
    assert_eq!((clients.resets(), servers.resets()), (0, 1));
}
