//! Senders that were let in, begin everything and end nothing.

use std::time::Duration;

use dfcp::SendStream;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::Siege;
use super::insiders::{Insider, block_on, offer};

/// Sessions that stall at a time, each from an address and with a key of its own: with those of other attacks
/// fewer than there are places.
const STALLED: usize = 16;
/// The largest file that may come in a pack, and how much of it comes.
const PACKED: u64 = 256 << 10;
const LARGE: u64 = 100 << 20;

/// How far a session goes before it stalls.
const STEPS: u32 = 10;

struct Stalled {
    insider: Insider,
    _objects: Vec<SendStream>,
}

async fn stall(siege: &Siege<'_>, host: u8, step: u32) -> Option<Stalled> {
    let mut insider = Insider::connect(siege, 20, host).await?;
    let mut objects = Vec::new();
    let name = |i: u64| format!("stalled-{host}-{step}-{i}");
    match step {
        0 => {}                                           // A stream that says nothing.
        1 => drop(insider.send.write_all(&[0, 0]).await), // Half of a length.
        2 => drop(insider.send.write_all(&[0, 0, 255, 255, b'{']).await),
        3 => drop(insider.say(&offer((0..500).map(name), 1000, true)).await),
        4 => drop(insider.say(&offer((0..500).map(name), 1000, false)).await),
        5 => {
            insider.say(&offer((0..8).map(name), LARGE, false)).await;
            for index in 0..8 {
                let part = json!({"type": "part", "index": index, "extents": [[0, LARGE]]});
                insider.say(&part).await;
            }
        }
        6 => {
            // Packs of small files, each almost all there.
            insider.say(&offer((0..32).map(name), PACKED, false)).await;
            for pack in 0..8 {
                insider.say(&pack_of(4 * pack..4 * pack + 4)).await;
                objects.push(object(&insider, 4 * PACKED as usize - 1).await?);
            }
        }
        7 => {
            // The same, but what comes last comes first, as far as credit goes.
            insider.say(&offer((0..32).map(name), PACKED, false)).await;
            for pack in 0..8 {
                insider.say(&pack_of(4 * pack..4 * pack + 4)).await;
                objects.push(object(&insider, PACKED as usize - 1).await?);
            }
        }
        8 => {
            // As many files as may be under way, a byte of each.
            insider
                .say(&offer((0..250).map(name), 300_000, false))
                .await;
            for index in 0..250 {
                let part = json!({"type": "part", "index": index, "extents": [[0, 1]]});
                insider.say(&part).await;
                let mut object = insider.connection.open_object().await.ok()?;
                object.write_all(&[7]).await.ok()?;
                object.finish().ok()?;
            }
        }
        _ => {
            // Objects that nothing was said of.
            insider.say(&offer((0..8).map(name), LARGE, false)).await;
            for _ in 0..24 {
                objects.push(object(&insider, 200_000).await?);
            }
        }
    }
    Some(Stalled {
        insider,
        _objects: objects,
    })
}

fn pack_of(files: std::ops::Range<u64>) -> Value {
    let files: Vec<_> = files.map(|i| json!([i, "0".repeat(64)])).collect();
    json!({"type": "pack", "files": files})
}

/// The beginning of an object: what the receiver takes of it within a while.
async fn object(insider: &Insider, bytes: usize) -> Option<SendStream> {
    let mut object = insider.connection.open_object().await.ok()?;
    let bytes = vec![7; bytes];
    let write = object.write_all(&bytes);
    let _ = tokio::time::timeout(Duration::from_millis(200), write).await;
    Some(object)
}

/// Sessions that stall at every step, as many as find a place.
pub fn stalls(siege: &Siege<'_>) -> u64 {
    block_on(async {
        let (mut count, mut stalled) = (0, std::collections::VecDeque::new());
        for round in siege.rounds(1000) {
            let step = round % STEPS;
            let begun = stall(siege, (round % 250) as u8 + 1, step).await;
            count += u64::from(begun.is_some());
            stalled.extend(begun);
            if stalled.len() > STALLED {
                stalled.pop_front();
            }
            tokio::time::sleep(siege.ahead(20 * count)).await;
        }
        stalled
            .iter()
            .for_each(|s: &Stalled| s.insider.connection.close(1u32.into(), ""));
        count
    })
}

/// Offers of a million names, and of paths as long and as deep as there are.
pub fn million_names(siege: &Siege<'_>) -> u64 {
    block_on(async {
        let mut count = 0;
        for round in siege.rounds(40) {
            let host = (round % 4) as u8 + 1;
            let Some(mut insider) = Insider::connect(siege, 21, host).await else {
                continue;
            };
            for part in 0..1000u64 {
                let last = part == 999;
                let deep = "d/".repeat(1000);
                let names = (0..if round % 2 == 0 { 1000 } else { 30 }).map(|i| match round % 2 {
                    0 => format!("{part:x}.{i:x}"),
                    _ => format!("{part:x}/{deep}{i:x}"),
                });
                if !insider.say(&offer(names, 0, !last)).await {
                    break;
                }
                count += 1;
                tokio::time::sleep(siege.ahead(count)).await;
            }
        }
        count
    })
}

/// All messages there are, about files that there are and that there are not, of a session that goes on.
pub fn control_floods(siege: &Siege<'_>) -> u64 {
    block_on(async {
        let mut count = 0;
        let hash = "0".repeat(64);
        for round in siege.rounds(400) {
            let Some(mut insider) = Insider::connect(siege, 22, (round % 8) as u8 + 1).await else {
                continue;
            };
            let names = (0..100).map(|i| format!("control-{round}-{i}"));
            insider.say(&offer(names, 1 << 20, false)).await;
            let extents: Vec<_> = (0..1000u64).map(|i| [i << 10, 1]).collect();
            let values: Vec<_> = (0..900).map(|_| &hash).collect();
            for i in 0..2000u64 {
                let index = i % 100;
                let message = match (i + u64::from(round)) % 6 {
                    0 => json!({"type": "resume", "index": index}),
                    1 => json!({"type": "hash", "index": index, "blake3": hash}),
                    2 => json!({"type": "groups", "index": index, "values": values}),
                    3 => json!({"type": "holes", "index": index, "extents": extents}),
                    4 => json!({"type": "part", "index": index, "extents": extents}),
                    _ => json!({"type": "failed", "index": index, "message": "m"}),
                };
                if !insider.say(&message).await {
                    break;
                }
                count += 1;
                tokio::time::sleep(siege.ahead(count)).await;
            }
        }
        count
    })
}
