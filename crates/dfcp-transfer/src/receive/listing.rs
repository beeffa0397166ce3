//! Reads an offer, in no more time than what comes of it takes on a slow path.

use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};

use super::PATIENCE;
use crate::Error;
use crate::memory::Memory;
use crate::message::{FromSender, MAX_MESSAGE, Reader, Wishes, read};
use crate::offer::{self, Limits, Offer};
use crate::turns::Going;

/// How long a whole offer may take beside what its parts need: three times a part's patience, for a path
/// that stands still now and then, and for a sender that has other things to do.
const SLACK: Duration = Duration::from_secs(30);
/// The slowest path that an offer of any length gets through, in bytes a second: that of the longest part
/// in its time, 52 kbit/s.
pub(super) const SLOWEST: u64 = MAX_MESSAGE as u64 / PATIENCE.as_secs();

/// Reads an offer and checks it.
pub(crate) async fn read_offer<R: AsyncRead + Unpin>(
    reader: &mut Reader<R>,
    limits: Limits,
    offers: &Memory,
    session: &Going,
) -> Result<(offer::Offered, Wishes), Error> {
    let mut offer = Offer::new(limits, offers);
    let mut wished = Wishes::default();
    let mut start = Instant::now();
    // Bytes of parts, of each at most what its content explains: spaces between words buy no time.
    let mut worth = 0;
    let mut list = session.list();
    loop {
        let due = start + SLACK + Duration::from_secs(worth / SLOWEST);
        let heard = reader.bytes_of_messages();
        let part = timeout_at(due.min(Instant::now() + PATIENCE), reader.next_text()).await;
        let part =
            part.map_err(|_| Error::protocol("the sender takes too long to say what it offers"))??;
        match list.work(|| part.map(|text| read(&text)).transpose())? {
            Some(FromSender::Offer {
                version,
                entries,
                more,
                wishes,
                people,
            }) => {
                if offer.is_empty() {
                    wished = wishes;
                }
                let explained = offer::most_bytes(&entries, &people);
                worth += explained.min(reader.bytes_of_messages() - heard);
                let is_bare = entries.is_empty() && people.is_empty();
                list.work(|| offer.add(version, entries, people))?;
                if !more {
                    // A list of many takes seconds, which are not those of other sessions.
                    let finished = tokio::task::spawn_blocking(|| offer.finish()).await;
                    let listed = finished.map_err(|error| Error::Task(error.to_string()))??;
                    return Ok((listed, wished));
                }
                if is_bare {
                    return Err(Error::protocol("the sender offers nothing, and then more"));
                }
                // The sender's time does not run meanwhile.
                let before = Instant::now();
                list.rest().await;
                start += before.elapsed();
            }
            _ => return Err(Error::protocol("the sender offers no files")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::message::{Entry, People, VERSION};
    use crate::turns::Sessions;

    fn entries(count: usize) -> Vec<Entry> {
        let entry = |i| Entry {
            path: format!("photographs/2026/summer/{i:08}.jpeg"),
            size: 3_000_000,
            mtime: 1_780_000_000,
            mode: 0o644,
            ..Entry::default()
        };
        (0..count).map(entry).collect()
    }

    fn part(entries: &[Entry], more: bool) -> FromSender {
        FromSender::Offer {
            version: VERSION,
            entries: entries.to_vec(),
            more,
            wishes: Wishes::default(),
            people: People::default(),
        }
    }

    fn framed(message: &FromSender) -> Vec<u8> {
        let json = serde_json::to_vec(message).unwrap();
        [&(json.len() as u32).to_be_bytes()[..], &json].concat()
    }

    /// What a receiver makes of a sender that `play`s, and how long it took on a clock that waits for nobody.
    async fn heard(
        play: impl AsyncFnOnce(&mut DuplexStream) -> std::io::Result<()>,
    ) -> (Result<offer::Offered, Error>, Duration) {
        let (mut near, far) = tokio::io::duplex(256 << 10);
        let (mut reader, memory) = (Reader::new(far), Memory::default());
        let alive = Sessions::default().begin();
        // Directories count as well.
        let limits = Limits {
            files: 101_000,
            ..Limits::default()
        };
        let start = Instant::now();
        let read = async {
            let offered = read_offer(&mut reader, limits, &memory, &alive.going()).await;
            drop(reader);
            offered
        };
        let (offered, _) = tokio::join!(read, play(&mut near));
        (offered.map(|(offered, _)| offered), start.elapsed())
    }

    /// Bytes at so many a second, in pieces of a packet.
    async fn trickle(stream: &mut DuplexStream, bytes: &[u8], bytes_s: u64) -> std::io::Result<()> {
        let start = Instant::now();
        for (i, piece) in (0..).zip(bytes.chunks(1200)) {
            let at = Duration::from_secs_f64((i * 1200) as f64 / bytes_s as f64);
            tokio::time::sleep_until(start + at).await;
            stream.write_all(piece).await?;
        }
        Ok(())
    }

    /// The bytes of the next part, with a file or without.
    type Drip<'a> = &'a dyn Fn(&[Entry]) -> Vec<u8>;

    #[tokio::test(start_paused = true)]
    async fn parts_that_drip_do_not_keep_a_session_open() {
        let files = entries(400);
        let padded = |message: &FromSender| {
            let mut json = serde_json::to_vec(message).unwrap();
            json.resize(MAX_MESSAGE, b' ');
            [&(json.len() as u32).to_be_bytes()[..], &json].concat()
        };
        let drips: [Drip<'_>; 3] = [
            &|_| framed(&part(&[], true)),
            &|one| framed(&part(one, true)),
            &|one| padded(&part(one, true)),
        ];
        for (which, drip) in drips.iter().enumerate() {
            let (offered, took) = heard(async |stream| {
                for one in files.chunks(1) {
                    stream.write_all(&drip(one)).await?;
                    tokio::time::sleep(Duration::from_secs(9)).await;
                }
                stream.write_all(&framed(&part(&[], false))).await
            })
            .await;
            assert!(
                offered.is_err() && took < Duration::from_secs(40),
                "drip {which}: {took:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_honest_offer_of_many_files_gets_through_a_slow_path() {
        let files = entries(100_000);
        let mut bytes = Vec::new();
        for message in offer::split(&files, Wishes::default(), &People::default()) {
            bytes.extend(framed(&message));
        }
        // A satellite's 256 kbit/s with 600 ms, and three outages of 9 s; the slowest path that is meant to
        // do, less what packets have beside data.
        let pauses = [bytes.len() / 4, bytes.len() / 2, bytes.len() * 3 / 4];
        let (offered, took) = heard(async |stream| {
            tokio::time::sleep(Duration::from_millis(600)).await;
            let mut at = 0;
            for pause in pauses {
                trickle(stream, &bytes[at..pause], 256_000 / 8).await?;
                tokio::time::sleep(Duration::from_secs(9)).await;
                at = pause;
            }
            trickle(stream, &bytes[at..], 256_000 / 8).await
        })
        .await;
        assert_eq!(offered.unwrap().entries, files);
        println!("{} bytes took {took:?} at 256 kbit/s", bytes.len());
        let (offered, took) = heard(async |stream| trickle(stream, &bytes, SLOWEST).await).await;
        assert_eq!(offered.unwrap().entries, files);
        println!("{} bytes took {took:?} at 52 kbit/s", bytes.len());
        let (offered, took) =
            heard(async |stream| trickle(stream, &bytes, SLOWEST / 2).await).await;
        assert!(
            offered.is_err() && took < Duration::from_secs(120),
            "{took:?}"
        );
    }

    /// Reads an offer that is there as a whole, where `others` are done when its reading leaves them a turn first,
    /// and how long it rested by a clock that waits for nobody. They have to have had it.
    async fn read_beside(parts: usize, others: impl FnOnce()) -> Duration {
        let files = entries(400 * parts);
        let last = parts - 1;
        let messages = files.chunks(400).enumerate();
        let messages = messages.map(|(i, files)| framed(&part(files, i < last)));
        let bytes = messages.collect::<Vec<_>>().concat();
        let (mut reader, memory) = (Reader::new(&bytes[..]), Memory::default());
        let sessions = Sessions::default();
        let [alive, _other] = [(); 2].map(|()| sessions.begin());
        let (going, start) = (alive.going(), Instant::now());
        let had_turn = std::cell::Cell::new(false);
        let read = async {
            let offered = read_offer(&mut reader, Limits::default(), &memory, &going).await;
            assert_eq!(offered.unwrap().0.entries.len(), files.len());
            assert!(had_turn.get());
        };
        let others = async {
            had_turn.set(true);
            others();
        };
        tokio::join!(biased; read, others);
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_turns_while_an_offer_is_read() {
        assert!(!read_beside(100, || ()).await.is_zero());
    }

    #[test]
    fn others_have_turns_while_an_offer_is_checked() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            // The only thread beside this one is busy until the others have their turn.
            let (turn, had) = std::sync::mpsc::channel();
            let busy = tokio::task::spawn_blocking(move || had.recv().is_ok());
            read_beside(1, || turn.send(()).unwrap()).await;
            assert!(busy.await.unwrap());
        });
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_beyond_the_limit_of_bytes_is_refused_before_the_offer_ends() {
        let mut files = entries(2);
        files[0].size = Limits::default().bytes;
        let (offered, took) = heard(async |stream| {
            for one in files.chunks(1) {
                stream.write_all(&framed(&part(one, true))).await?;
            }
            Ok(())
        })
        .await;
        let failure = offered.err().unwrap();
        assert!(matches!(failure, Error::Refused(_)), "{failure}");
        assert_eq!(took, Duration::ZERO);
    }
}
