use super::*;
use crate::random::Seed;
use std::collections::BTreeSet;

/// Names unique, links between different nodes, every node reached.
fn check(graph: &Graph) {
    let nodes: BTreeSet<_> = graph.nodes.iter().map(|node| &node.name).collect();
    let links: BTreeSet<_> = graph.links.iter().map(|link| &link.name).collect();
    assert_eq!(
        (nodes.len(), links.len()),
        (graph.nodes.len(), graph.links.len())
    );
    let mut reached = BTreeSet::from([0]);
    let mut before = 0;
    while reached.len() > before {
        before = reached.len();
        for link in &graph.links {
            assert_ne!(link.from, link.to, "{}", link.name);
            if reached.contains(&link.from) || reached.contains(&link.to) {
                reached.extend([link.from, link.to]);
            }
        }
    }
    assert_eq!(reached.len(), graph.nodes.len(), "not connected");
}

fn hosts(graph: &Graph) -> usize {
    let hosts = graph.nodes.iter();
    hosts.filter(|node| node.kind == NodeKind::Host).count()
}

#[test]
fn counts_are_the_papers() {
    for pairs in [1, 2, 100] {
        let graph = dumbbell(pairs);
        check(&graph);
        assert_eq!(
            (graph.nodes.len(), graph.links.len()),
            (2 + 2 * pairs, 1 + 2 * pairs)
        );
        assert_eq!(graph.pairs.len(), pairs);
    }
    let parking = parking_lot();
    check(&parking);
    assert_eq!(
        (
            parking.nodes.len(),
            parking.links.len(),
            parking.pairs.len()
        ),
        (9, 8, 3)
    );

    let flower = flower(Flower::default());
    check(&flower);
    assert_eq!((hosts(&flower), Flower::default().host_count()), (210, 210));
    let with = |role| {
        let links = flower.links.iter();
        links.filter(|link| link.roles.contains(&role)).count()
    };
    assert_eq!(
        (with("loop"), with("core"), with("dslam"), with("host")),
        (40, 5, 70, 210)
    );

    let esnet = esnet();
    check(&esnet);
    assert_eq!((esnet.nodes.len(), esnet.links.len()), (16, 20));
    let spurs = esnet.links.iter().filter(|link| link.roles == ["spur"]);
    assert_eq!(spurs.count(), 4);
}

#[test]
fn small_flowers_have_no_double_links() {
    for loops in 1..=3 {
        for routers in 1..=3 {
            let sizes = Flower {
                loops,
                routers,
                ..Flower::default()
            };
            let graph = flower(sizes);
            check(&graph);
            let ends: BTreeSet<_> = (graph.links.iter())
                .map(|link| (link.from.min(link.to), link.from.max(link.to)))
                .collect();
            assert_eq!(ends.len(), graph.links.len(), "{sizes:?}");
        }
    }
}

#[test]
fn random_graphs_are_connected_simple_and_repeatable() {
    for seed in 0..20 {
        for (nodes, links) in [(1, 0), (2, 1), (10, 9), (10, 45), (50, 100), (50, 280)] {
            let draw = |seed| erdos_renyi(nodes, links, Seed(seed)).expect("in range");
            let graph = draw(seed);
            check(&graph);
            assert_eq!(
                (graph.nodes.len(), graph.links.len()),
                (nodes, links),
                "seed {seed}"
            );
            let ends: BTreeSet<_> = graph.links.iter().map(|l| (l.from, l.to)).collect();
            assert_eq!(ends.len(), links, "seed {seed}");
            assert_eq!(graph, draw(seed));
        }
    }
    assert_ne!(
        erdos_renyi(50, 100, Seed(1)).expect("in range"),
        erdos_renyi(50, 100, Seed(2)).expect("in range")
    );
    assert!(erdos_renyi(10, 8, Seed(1)).is_err());
    assert!(erdos_renyi(10, 46, Seed(1)).is_err());
    assert!(erdos_renyi(0, 0, Seed(1)).is_err());
}

#[test]
fn random_links_are_equally_likely() {
    // 4 nodes, 3 links: 16 trees, each 1/16. 16000 draws: standard deviation of a count 30.6.
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..16_000 {
        let graph = erdos_renyi(4, 3, Seed(seed)).expect("in range");
        let ends: Vec<_> = graph.links.iter().map(|l| (l.from, l.to)).collect();
        *counts.entry(ends).or_insert(0_i32) += 1;
    }
    assert_eq!(counts.len(), 16);
    for (ends, count) in counts {
        assert!(
            (count - 1000).abs() < 160,
            "{ends:?}: {count} of 1000 expected"
        );
    }
}
