//! Sessions between two endpoints on loopback, by the library's interface alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dfcp::{Connection, Endpoint, EndpointConfig, Progress};
use dfcp_transfer::{
    DONE, Error, Meter, OnConflict, Outcome, ProblemKind, Received, Sent, Sources, Store,
};

/// Two endpoints and the connection between them, seen from both ends.
async fn connected() -> ([Endpoint; 2], Connection, Connection) {
    let key = || dfcp::generate_key().unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Endpoint::bind(EndpointConfig::server(key(), address)).unwrap();
    let client = Endpoint::bind(EndpointConfig::client(key())).unwrap();
    let connect = client.connect(server.local_addr(), Some(server.public_key()));
    let (near, far) = tokio::join!(connect, server.accept());
    ([client, server], near.unwrap(), far.unwrap())
}

/// Sends `paths` into the directory `to`.
async fn transfer(
    paths: &[PathBuf],
    to: &Path,
    on_conflict: OnConflict,
) -> (Result<Sent, Error>, Received, u64) {
    let sources = Sources::scan(paths).unwrap();
    let store = Arc::new(Store::open(to, on_conflict).unwrap());
    let (_endpoints, near, far) = connected().await;
    let progress = Progress::default();
    let (meter, _watch) = Meter::start();
    let send = async {
        let sent = dfcp_transfer::send(&near, &sources, &progress).await;
        near.close(DONE, "");
        sent
    };
    let (sent, received) = tokio::join!(send, dfcp_transfer::receive(&far, store, &meter));
    (sent, received.unwrap(), meter.progress().bytes())
}

#[tokio::test]
async fn a_tree_arrives_and_both_ends_know() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for (name, size) in [("a", 0), ("deep/b", 1000), ("deep/er/c", 400_000)] {
        fs::write(tree.join(name), vec![size as u8; size]).unwrap();
    }
    let to = folder.path().join("received");
    let (sent, received, bytes) =
        transfer(std::slice::from_ref(&tree), &to, OnConflict::Error).await;
    let sent = sent.unwrap();
    assert!(received.failure.is_none(), "{received:?}");
    assert_eq!(sent.outcomes, received.outcomes);
    assert_eq!(bytes, 401_000);
    let done = |outcome: &Outcome| *outcome == Outcome::Done;
    assert!(sent.outcomes.len() == 3 && sent.outcomes.values().all(done));
    for entry in received.entries.iter().filter(|entry| !entry.directory) {
        let [original, copy] = [folder.path(), &to].map(|root| root.join(&entry.path));
        assert!(fs::read(original).unwrap() == fs::read(copy).unwrap());
    }
}

#[tokio::test]
async fn a_file_that_is_taken_is_a_problem_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("received");
    fs::create_dir(&to).unwrap();
    let paths = ["taken", "free"].map(|name| folder.path().join(name));
    for path in &paths {
        fs::write(path, "new").unwrap();
    }
    fs::write(to.join("taken"), "as it was").unwrap();
    let (sent, received, _) = transfer(&paths, &to, OnConflict::Error).await;
    let outcomes = sent.unwrap().outcomes;
    assert!(
        matches!(&outcomes[&0], Outcome::Error(problem) if problem.kind == ProblemKind::Conflict),
        "{outcomes:?}"
    );
    assert_eq!(
        (&outcomes[&1], &received.outcomes),
        (&Outcome::Done, &outcomes)
    );
    assert_eq!(fs::read(to.join("taken")).unwrap(), b"as it was");
    let skipped = transfer(&paths, &to, OnConflict::Skip).await.0.unwrap();
    let skipped: Vec<_> = skipped.outcomes.into_values().collect();
    assert_eq!(skipped, [Outcome::Skipped, Outcome::Skipped]);
}
