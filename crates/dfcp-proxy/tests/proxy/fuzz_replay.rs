//! The committed corpus of the fuzz target, and what is near it, through the same function.

#[path = "../../../../fuzz/src/proxy.rs"]
mod bodies;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn the_corpus_and_what_is_near_it_are_survived() {
    replay::run("proxy", 20_000, bodies::parsers);
}
