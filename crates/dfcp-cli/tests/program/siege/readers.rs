//! Senders that were let in and have the receiver read, with few words, what is there or what they say.

use serde_json::json;

use super::Siege;
use super::insiders::{Insider, block_on, offer};

/// Files that somebody sent before, and how large each is.
const FILES: u64 = 8;
const SIZE: u64 = 1 << 30;
/// Sessions that have them compared at a time.
const SESSIONS: usize = 8;

/// Files of the names and sizes of those that are there: each is read as a whole to find out whether it is the same,
/// for a hundred bytes, and their sender says nothing more. As soon as he has a place he does it again.
pub fn comparisons(siege: &Siege<'_>) -> u64 {
    let name = |i| format!("there-{i}");
    for i in 0..FILES {
        std::fs::create_dir_all(&siege.directory).unwrap();
        let file = std::fs::File::create(siege.directory.join(name(i))).unwrap();
        file.set_len(SIZE).unwrap();
    }
    block_on(async {
        let (mut count, mut sessions) = (0, std::collections::VecDeque::new());
        for round in siege.rounds(2000) {
            let host = (round % 250) as u8 + 1;
            if let Some(mut insider) = Insider::connect(siege, 23, host).await
                && insider.say(&offer((0..FILES).map(name), SIZE, false)).await
            {
                count += 1;
                sessions.push_back(insider);
            }
            if sessions.len() > SESSIONS
                && let Some(first) = sessions.pop_front()
            {
                first.connection.close(1u32.into(), "");
            }
            tokio::time::sleep(siege.ahead(20 * count)).await;
        }
        count
    })
}

/// Offers of as many files as may be, each a hundred directories deep.
pub fn deep_offers(siege: &Siege<'_>) -> u64 {
    long_offers(siege, 24, &"d/".repeat(98))
}

/// The same of files that are looked for one by one, and not there.
pub fn lookups(siege: &Siege<'_>) -> u64 {
    long_offers(siege, 25, "")
}

fn long_offers(siege: &Siege<'_>, net: u8, directory: &str) -> u64 {
    block_on(async {
        let mut count = 0;
        for round in siege.rounds(40) {
            let Some(mut insider) = Insider::connect(siege, net, (round % 8) as u8 + 1).await
            else {
                continue;
            };
            for part in 0..490u64 {
                let names = (0..200).map(|i| format!("{directory}{part:x}.{i:x}"));
                let mut said = offer(names, 0, part < 489);
                said["wishes"] = json!({"dry_run": true});
                if !insider.say(&said).await {
                    break;
                }
                count += 1;
                tokio::time::sleep(siege.ahead(count)).await;
            }
        }
        count
    })
}
