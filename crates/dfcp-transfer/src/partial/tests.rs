//! Parts of files, and the journal that says which there are.

use super::*;
use crate::tenants::{Tenant, Tenants};
use crate::tree::MIN_GROUP;
use crate::turns::Sessions;

const SIZE: u64 = 16 * MIN_GROUP + 1000;
/// A block of the transport: no whole number of groups.
const BLOCK: u64 = 183_040;

fn content(size: u64) -> Vec<u8> {
    (0..size).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect()
}

fn empty() -> Partial {
    let hold = Tenants::default().take("x", &Tenant::new([1; 32]));
    let file = tempfile::tempfile().expect("a file");
    Partial::new(file, "x".to_owned(), SIZE, None, hold.expect("free"))
}

fn blocks() -> Vec<Range<u64>> {
    let starts = (0..SIZE).step_by(BLOCK as usize);
    starts.map(|at| at..(at + BLOCK).min(SIZE)).collect()
}

fn put(partial: &Partial, bytes: &[u8], range: &Range<u64>) {
    let part = &bytes[range.start as usize..range.end as usize];
    partial.write(part, range.start, || true).expect("written");
}

/// The same file, opened by a next transfer.
fn reopened(file: &Partial) -> Partial {
    let hold = Tenants::default().take("x", &Tenant::new([1; 32]));
    let disk = file.file.try_clone().expect("open");
    Partial::new(disk, "x".to_owned(), SIZE, None, hold.expect("free"))
}

#[test]
fn blocks_have_the_files_hash_in_any_order() {
    let bytes = content(SIZE);
    let hash = blake3::hash(&bytes);
    let in_order = blocks();
    let mut backwards = in_order.clone();
    backwards.reverse();
    let mut swapped = in_order.clone();
    swapped.swap(0, 1);
    swapped.swap(2, 4);
    for order in [in_order, backwards, swapped] {
        let partial = empty();
        order.iter().for_each(|range| put(&partial, &bytes, range));
        assert_eq!(partial.root(), Some(hash), "{order:?}");
        assert!(partial.groups().running.is_empty(), "nothing is kept");
    }
}

/// What a group's value says is in the file, whatever was there before.
#[test]
fn bytes_that_come_again_are_hashed_as_they_are_then() {
    let (bytes, wrong) = (content(SIZE), vec![7_u8; SIZE as usize]);
    // Bytes that come twice count twice: few of them do not make the group whole too soon.
    let some = MIN_GROUP / 4;
    for again in [0..some, some / 2..some, 0..some / 2] {
        let partial = empty();
        put(&partial, &wrong, &(0..some));
        put(&partial, &bytes, &again);
        put(&partial, &bytes, &(some..MIN_GROUP));
        let (_, value) = partial.have()[0];
        let is = partial.shape.value(&partial.file, 0).expect("read");
        assert_eq!(value, is, "{again:?}");
    }
}

/// A journal that cannot become shorter: what is noted there outlives a kill at any moment.
#[cfg(target_os = "linux")]
#[test]
fn a_journal_that_is_gone_on_with_never_says_less() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let journal = || {
        let sealed = memfd_create("journal", MemfdFlags::ALLOW_SEALING);
        File::from(sealed.expect("a file in memory"))
    };
    let (first, file) = (journal(), empty());
    let again = || first.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    let order = blocks();
    put(&file, &bytes, &order[2]);
    put(&file, &bytes, &order[0]);
    let there = file.have();
    assert_eq!(there.len(), 4, "two of each block");
    fcntl_add_seals(&first, SealFlags::SHRINK).expect("sealed");
    let length = || first.metadata().expect("it is there").len();
    let before = length();
    for more in [0, 1] {
        let hold = Tenants::default().take("x", &Tenant::new([1; 32]));
        let (disk, hold) = (file.file.try_clone().expect("open"), hold.expect("free"));
        let next = Partial::new(disk, "x".to_owned(), SIZE, None, hold);
        next.recover(&again(), &owner, || true).expect("read");
        assert_eq!(next.have().len(), there.len() + 2 * more);
        let groups = (there.len() + 2 * more) as u64;
        assert_eq!(next.bytes_there(), groups * MIN_GROUP);
        next.start_journal(again(), &owner).expect("gone on with");
        assert_eq!(length(), before + (2 * more * LINE) as u64);
        if more == 0 {
            put(&next, &bytes, &(10 * MIN_GROUP..12 * MIN_GROUP));
        }
    }
    // Of another sender nothing is believed.
    let other = journal();
    file.start_journal(other.try_clone().expect("a second one"), &[2; 32])
        .expect("begun");
    let hold = Tenants::default().take("x", &Tenant::new([1; 32]));
    let disk = file.file.try_clone().expect("open");
    let next = Partial::new(disk, "x".to_owned(), SIZE, None, hold.expect("free"));
    next.recover(&other, &owner, || true).expect("read");
    assert_eq!(next.have(), []);
}

#[test]
fn a_hole_over_what_came_is_hashed_as_a_hole() {
    let bytes = content(SIZE);
    let (partial, some) = (empty(), MIN_GROUP / 4);
    put(&partial, &bytes, &(0..some));
    partial.hole(&(0..some / 2), || true).expect("a hole");
    put(&partial, &bytes, &(some..MIN_GROUP));
    let (_, value) = partial.have()[0];
    let is = partial.shape.value(&partial.file, 0).expect("read");
    assert_eq!(value, is);
}

/// What takes long is for nobody when its session is over, and nothing of it is told as lost.
#[test]
fn a_session_that_is_over_reads_no_further() {
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    put(&file, &bytes, &(0..2 * MIN_GROUP));
    let hold = Tenants::default().take("x", &Tenant::new(owner));
    let disk = file.file.try_clone().expect("open");
    let next = Partial::new(disk, "x".to_owned(), SIZE, None, hold.expect("free"));
    assert!(next.recover(&again(), &owner, || false).is_err());
    assert_eq!(next.have(), []);
    assert!(next.hole(&(0..SIZE), || false).is_err());
    assert_eq!(next.have(), []);
}

#[test]
fn a_journal_that_is_too_long_is_not_read() {
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    put(&file, &bytes, &(0..2 * MIN_GROUP));
    for (length, there) in [(0, 2), (MAX_JOURNAL, 2), (MAX_JOURNAL + 1, 0)] {
        if length > 0 {
            journal.set_len(length).expect("longer");
        }
        let hold = Tenants::default().take("x", &Tenant::new(owner));
        let disk = file.file.try_clone().expect("open");
        let next = Partial::new(disk, "x".to_owned(), SIZE, None, hold.expect("free"));
        next.recover(&again(), &owner, || true).expect("read");
        assert_eq!(next.have().len(), there, "{length}");
    }
}

/// A sender that has a group noted again and again would have it read as often.
#[test]
fn a_group_that_was_noted_often_is_read_once() {
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    put(&file, &bytes, &(0..MIN_GROUP));
    let asked = |there: &[u8]| {
        journal.write_all_at(there, HEADER as u64).expect("noted");
        let (next, asked) = (reopened(&file), std::cell::Cell::new(0));
        let go_on = || {
            asked.set(asked.get() + 1);
            true
        };
        next.recover(&again(), &owner, go_on).expect("read");
        assert_eq!(next.have().len(), 1);
        asked.get()
    };
    let (_, value) = file.have()[0];
    let right = line_of(0, &value);
    let once = asked(&right);
    let wrong = line_of(0, &[7; 32]).repeat(1000);
    assert_eq!(asked(&[&wrong[..], &right].concat()), once);
}

/// Reading them back would cost a disk as much as writing.
#[test]
fn bytes_that_come_in_order_are_not_read_back() {
    let bytes = content(SIZE);
    let folder = tempfile::tempdir().expect("a directory");
    let file = File::create(folder.path().join("x")).expect("a file to write to");
    let hold = Tenants::default().take("x", &Tenant::new([1; 32]));
    let partial = Partial::new(file, "x".to_owned(), SIZE, None, hold.expect("free"));
    blocks()
        .iter()
        .for_each(|range| put(&partial, &bytes, range));
    assert_eq!(partial.root(), Some(blake3::hash(&bytes)));
}

/// What is in the journal when it is killed in the middle of a line: the lines that follow are read as well.
#[test]
fn a_line_that_was_cut_off_does_not_spoil_those_that_follow() {
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    put(&file, &bytes, &(0..2 * MIN_GROUP));
    for cut in [1, LINE - 1] {
        let before = journal.metadata().expect("it is there").len();
        let torn = &line_of(3, &[7; 32])[..cut];
        journal
            .write_all_at(torn, before)
            .expect("a part of a line");
        let next = reopened(&file);
        next.recover(&again(), &owner, || true).expect("read");
        let there = next.have().len() as u64;
        next.start_journal(again(), &owner).expect("gone on with");
        put(&next, &bytes, &(there * MIN_GROUP..(there + 1) * MIN_GROUP));
        let last = reopened(&file);
        last.recover(&again(), &owner, || true).expect("read");
        assert_eq!(last.have().len() as u64, there + 1, "{cut}");
    }
}

/// One that has grown long is begun anew, with what is there: it stays one that is read.
#[test]
fn a_long_journal_is_begun_anew_and_says_the_same() {
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    put(&file, &bytes, &(0..2 * MIN_GROUP));
    // Whole lines, up to the longest that is gone on with, and one more.
    let lines = (LONG_JOURNAL - HEADER as u64) / LINE as u64;
    for (length, is_kept) in [(lines, true), (lines + 1, false)] {
        let length = HEADER as u64 + length * LINE as u64;
        journal.set_len(length).expect("longer");
        let next = reopened(&file);
        next.recover(&again(), &owner, || true).expect("read");
        next.start_journal(again(), &owner).expect("gone on with");
        let now = journal.metadata().expect("it is there").len();
        let short = (HEADER + 2 * LINE) as u64;
        assert_eq!(now, if is_kept { length } else { short });
        let last = reopened(&file);
        last.recover(&again(), &owner, || true).expect("read");
        assert_eq!(last.have(), file.have());
    }
}

/// What the journal says of a file that changed on the disk meanwhile, or that has fewer groups, is not so.
#[test]
fn only_groups_that_are_as_they_are_noted_are_there() {
    let (bytes, owner) = (content(SIZE), [1; 32]);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &owner).expect("begun");
    put(&file, &bytes, &(0..3 * MIN_GROUP));
    file.file
        .write_all_at(b"other", MIN_GROUP + 7)
        .expect("written");
    let end = journal.metadata().expect("it is there").len();
    let beyond = line_of(file.shape.count(), &[7; 32]);
    journal.write_all_at(&beyond, end).expect("written");
    let next = reopened(&file);
    next.recover(&again(), &owner, || true).expect("read");
    let there: Vec<u64> = next.have().into_iter().map(|(i, _)| i).collect();
    assert_eq!(there, [0, 2]);
    assert_eq!(next.bytes_there(), 2 * MIN_GROUP);
}

#[test]
fn a_file_takes_its_last_byte_and_none_behind_it() {
    let partial = empty();
    partial
        .write(b"x", SIZE - 1, || true)
        .expect("the last one");
    partial.write(b"", SIZE, || true).expect("nothing");
    for (bytes, at) in [(&b"xy"[..], SIZE - 1), (b"x", SIZE), (b"xy", u64::MAX)] {
        partial.write(bytes, at, || true).expect_err("too far");
    }
    assert_eq!(partial.file.metadata().expect("it is there").len(), SIZE);
}

/// A few words and a byte would have as much read as a group is long, beside all others.
#[test]
fn what_a_byte_completes_beside_a_hole_is_read_back_in_turns() {
    let partial = empty();
    let nobody = || false;
    let hole = 1..MIN_GROUP;
    // What came is read back whoever waits: it cost its sender as much.
    partial.write(b"x", 1, nobody).expect("written");
    partial
        .write(&[0; MIN_GROUP as usize - 2], 2, nobody)
        .expect("written");
    partial.write(b"x", 0, nobody).expect("read back");
    assert_eq!(partial.have().len(), 1);
    let partial = empty();
    partial.hole(&hole, || true).expect("made");
    partial.write(b"x", 0, nobody).expect_err("read back");
    assert_eq!(partial.have().len(), 0);
}

/// Only whole groups are forgotten: of others it is known what is missing.
#[test]
fn what_is_to_come_again_is_not_there() {
    let bytes = content(SIZE);
    let partial = empty();
    put(&partial, &bytes, &(0..2 * MIN_GROUP + 100));
    partial.forget(&(MIN_GROUP + 5..2 * MIN_GROUP + 5));
    let there: Vec<u64> = partial.have().into_iter().map(|(i, _)| i).collect();
    assert_eq!(there, [0]);
    assert_eq!(partial.bytes_there(), MIN_GROUP + 100);
    assert_eq!(partial.root(), None);
    put(&partial, &bytes, &(MIN_GROUP..2 * MIN_GROUP));
    put(&partial, &bytes, &(2 * MIN_GROUP + 100..SIZE));
    assert_eq!(partial.root(), Some(blake3::hash(&bytes)));
}

/// Ranges of a file come as one row of bytes, cut anywhere.
#[test]
fn what_comes_in_a_row_goes_to_its_places() {
    use dfcp::WriteAt;
    let bytes = content(SIZE);
    let extents = [(100, 50), (10_000, 5000), (SIZE - 300, 300)];
    let row: Vec<u8> = extents
        .iter()
        .flat_map(|(at, length)| &bytes[*at as usize..(at + length) as usize])
        .copied()
        .collect();
    let alive = Sessions::default().begin();
    for piece in [1, 49, 50, 51, 1000, row.len()] {
        let partial = Arc::new(empty());
        let mut target = Extents::new(partial.clone(), &extents, alive.going());
        for (i, part) in row.chunks(piece).enumerate().rev() {
            target
                .write_all_at(part, (i * piece) as u64)
                .expect("written");
        }
        let more = target.write_all_at(b"x", row.len() as u64);
        assert!(more.is_err(), "more than was announced");
        assert!(target.write_all_at(b"xy", row.len() as u64 - 1).is_err());
        let mut expected = vec![0; SIZE as usize];
        for (at, length) in extents {
            let range = at as usize..(at + length) as usize;
            expected[range.clone()].copy_from_slice(&bytes[range]);
        }
        // The byte that came with one too many.
        expected[SIZE as usize - 1] = b'x';
        let mut read = vec![9; SIZE as usize];
        partial.file.read_exact_at(&mut read, 0).expect("read");
        assert!(read == expected, "{piece}");
    }
}

/// A hole at the end of a file, of which nothing else comes, is as long as it was said to be.
#[test]
fn a_file_of_holes_alone_is_whole() {
    let partial = empty();
    partial.hole(&(0..SIZE), || true).expect("a hole");
    assert_eq!(partial.file.metadata().expect("it is there").len(), SIZE);
    assert_eq!(partial.root(), Some(blake3::hash(&vec![0; SIZE as usize])));
    // Parts of groups, too.
    let (partial, some) = (empty(), MIN_GROUP / 2);
    let mut bytes = content(SIZE);
    bytes[some as usize..(3 * MIN_GROUP + some) as usize].fill(0);
    put(&partial, &bytes, &(0..some));
    partial
        .hole(&(some..3 * MIN_GROUP + some), || true)
        .expect("a hole");
    put(&partial, &bytes, &(3 * MIN_GROUP + some..SIZE));
    assert_eq!(partial.root(), Some(blake3::hash(&bytes)));
}

/// Else what was noted there would be believed of nobody.
#[test]
fn a_journal_of_another_sender_is_begun_anew_whatever_is_there() {
    let bytes = content(SIZE);
    let (journal, file) = (tempfile::tempfile().expect("a file"), empty());
    let again = || journal.try_clone().expect("a second one");
    file.start_journal(again(), &[2; 32]).expect("begun");
    put(&file, &bytes, &(0..2 * MIN_GROUP));
    // As a group of an older version of the file is there, of which no journal knows.
    let next = reopened(&file);
    put(&next, &bytes, &(0..MIN_GROUP));
    next.start_journal(again(), &[1; 32]).expect("begun");
    let there = |owner| {
        let last = reopened(&file);
        last.recover(&again(), &owner, || true).expect("read");
        last.have()
    };
    assert_eq!(there([1; 32]), next.have());
    assert_eq!(there([2; 32]), []);
}

/// A sender may name ranges that have no bytes: what is there of a file stays.
#[test]
fn no_bytes_that_come_again_make_no_group_come_again() {
    let (bytes, partial) = (content(SIZE), empty());
    put(&partial, &bytes, &(0..2 * MIN_GROUP));
    let there = partial.have();
    assert_eq!(there.len(), 2);
    partial.forget(&(1..1));
    partial.forget(&(MIN_GROUP..MIN_GROUP));
    assert_eq!(partial.have(), there);
    partial.forget(&(1..2));
    assert_eq!(partial.have(), there[1..]);
}

/// Each takes memory, whatever groups a sender begins.
#[test]
fn few_groups_that_were_begun_are_kept_in_memory() {
    let many = 2 * MAX_RUNNING as u64;
    let hold = Tenants::default().take("x", &Tenant::new([1; 32]));
    let file = tempfile::tempfile().expect("a file");
    let size = many * MIN_GROUP;
    let partial = Partial::new(file, "x".to_owned(), size, None, hold.expect("free"));
    for group in 0..many {
        partial
            .write(&[1], group * MIN_GROUP, || true)
            .expect("written");
    }
    assert_eq!(partial.groups().running.len(), MAX_RUNNING);
}
