//! Holes of files: ranges that read as zeros and take no room on a disk (`lseek`, SEEK_DATA and
//! SEEK_HOLE). They are not sent, and left out again where the file is written; the hash of a file
//! covers their zeros as any other bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Shortest hole that is told of: what naming one costs is nothing beside it.
const MIN_HOLE: u64 = 64 << 10;
/// Smallest block of a file system: ranges begin and end at one's, or with the file. Each costs the receiver a call
/// of its system, which is to be little beside what as many bytes cost otherwise.
pub(crate) const BLOCK: u64 = 512;
/// Most ranges of data of one file. Of a file with more, holes at its end are sent as zeros.
const MAX_RANGES: usize = 1 << 20;
/// Ranges in a message, which may have 65,536 bytes: two numbers of up to 19 digits each.
pub(crate) const LISTED: usize = 1024;
/// Bytes that are looked at, or written, at a time.
const BUFFER: usize = 256 << 10;
/// What holes read as. Not a part of the program's file, which would be so much larger.
pub(crate) static ZEROS: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; BUFFER].into());

/// The ranges of a file of `size` bytes that are in no hole; `None` if it has no holes, or the file
/// system does not tell.
pub(crate) fn data_of(file: &File, size: u64) -> Option<Vec<Range<u64>>> {
    ranges_of(|from| rustix::fs::seek(file, from), size, MAX_RANGES)
}

/// The same of what `seek` says, with no more than `most` ranges, the last of which then goes to the end.
fn ranges_of(
    seek: impl Fn(SeekFrom) -> Result<u64, Errno>,
    size: u64,
    most: usize,
) -> Option<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size && ranges.len() < most {
        let start = match seek(SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = seek(SeekFrom::Hole(start)).ok()?.min(size);
        if end <= start {
            break;
        }
        // One in a user's program may say anything.
        let start = start - start % BLOCK;
        let end = end.next_multiple_of(BLOCK).min(size);
        match ranges.last_mut() {
            Some(last) if start - last.end < MIN_HOLE => last.end = end,
            None if start < MIN_HOLE => ranges.push(0..end),
            _ => ranges.push(start..end),
        }
        at = end;
    }
    let cut_off = ranges.len() == most;
    if let Some(last) = ranges.last_mut()
        && (cut_off || size - last.end < MIN_HOLE)
    {
        last.end = size;
    }
    let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    (data < size).then_some(ranges)
}

/// The parts of `ranges`, offsets and lengths in order, that are in `data` too; and those that are not.
pub(crate) fn divide(ranges: &[(u64, u64)], data: &[Range<u64>]) -> [Vec<(u64, u64)>; 2] {
    let [mut inside, mut outside] = [Vec::new(), Vec::new()];
    for &(offset, length) in ranges {
        let (mut at, end) = (offset, offset + length);
        let first = data.partition_point(|range| range.end <= at);
        for range in data[first..].iter().take_while(|range| range.start < end) {
            if range.start > at {
                outside.push((at, range.start - at));
                at = range.start;
            }
            let to = range.end.min(end);
            inside.push((at, to - at));
            at = to;
        }
        if at < end {
            outside.push((at, end - at));
        }
    }
    [inside, outside]
}

/// Makes `range` of a file read as zeros without taking room, as far as its file system can; its bytes
/// beyond the file's end count as zeros already.
pub(crate) fn make_hole(file: &File, range: &Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::FallocateFlags;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file, flags, range.start, range.end - range.start) {
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
            made => return Ok(made?),
        }
    }
    write_zeros(file, range)
}

/// What file systems without holes get: `range` as zeros, as far as there are bytes.
fn write_zeros(file: &File, range: &Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut at = range.start;
    while at < range.end {
        let most = (range.end - at).min(BUFFER as u64) as usize;
        let n = file.read_at(&mut buffer[..most], at)?;
        if n == 0 {
            break;
        }
        if buffer[..n] != ZEROS[..n] {
            file.write_all_at(&ZEROS[..n], at)?;
        }
        at += n as u64;
    }
    Ok(())
}

/// Copies `range` of a file to the same place of another one. Where the first one has holes, which it has
/// outside of `data` if that is known, the other one gets them, too.
pub(crate) fn copy(
    from: &File,
    to: &File,
    range: &Range<u64>,
    data: Option<&[Range<u64>]>,
) -> io::Result<()> {
    let whole = (range.start, range.end - range.start);
    let [parts, holes] = data.map_or([vec![whole], vec![]], |data| divide(&[whole], data));
    for (start, length) in holes {
        make_hole(to, &(start..start + length))?;
    }
    for (start, length) in parts {
        copy_data(from, to, start..start + length)?;
    }
    Ok(())
}

/// Lets the file system copy, which may share what both have then, and does the rest.
fn copy_data(from: &File, to: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    #[cfg(target_os = "linux")]
    while at < range.end {
        let (mut read, mut written) = (at, at);
        let most = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), most);
        match copied {
            Ok(n) if n > 0 => at += n as u64,
            // Between these two it cannot, or it is at the end: reading tells.
            _ => break,
        }
    }
    let mut buffer = vec![0; BUFFER.min((range.end - at) as usize)];
    while at < range.end {
        let most = (range.end - at).min(BUFFER as u64) as usize;
        from.read_exact_at(&mut buffer[..most], at)?;
        to.write_all_at(&buffer[..most], at)?;
        at += most as u64;
    }
    Ok(())
}

/// Writes a small file that was offered with holes: blocks of zeros are left out.
pub(crate) fn write_sparsely(file: &File, bytes: &[u8]) -> io::Result<()> {
    /// Of most file systems.
    const BLOCK: usize = 4096;
    file.set_len(bytes.len() as u64)?;
    for (i, block) in bytes.chunks(BLOCK).enumerate() {
        if block != &ZEROS[..block.len()] {
            file.write_all_at(block, (i * BLOCK) as u64)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn ranges_are_divided_at_every_edge() {
        let data = [10..20, 30..40];
        let divide = |ranges: &[(u64, u64)]| divide(ranges, &data);
        assert_eq!(
            divide(&[(0, 50)]),
            [vec![(10, 10), (30, 10)], vec![(0, 10), (20, 10), (40, 10)]]
        );
        assert_eq!(divide(&[(10, 10)]), [vec![(10, 10)], vec![]]);
        assert_eq!(
            divide(&[(15, 20)]),
            [vec![(15, 5), (30, 5)], vec![(20, 10)]]
        );
        assert_eq!(
            divide(&[(20, 10), (45, 1)]),
            [vec![], vec![(20, 10), (45, 1)]]
        );
    }

    #[test]
    fn holes_are_found_and_made() {
        let file = tempfile::tempfile().unwrap();
        let size = 16 << 20;
        file.set_len(size).unwrap();
        file.write_all_at(&[1; 5000], 4 << 20).unwrap();
        let Some(data) = data_of(&file, size) else {
            eprintln!("skipped: this file system tells of no holes");
            return;
        };
        let bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
        assert!((5000..1 << 20).contains(&bytes), "{data:?}");
        assert!(data.iter().any(|range| range.contains(&(4 << 20))));
        file.write_all_at(&[1; 1 << 20], 8 << 20).unwrap();
        make_hole(&file, &((8 << 20)..(9 << 20))).unwrap();
        assert_eq!(data_of(&file, size).unwrap(), data);
        let other = tempfile::tempfile().unwrap();
        other.write_all_at(&vec![7; size as usize], 0).unwrap();
        copy(&file, &other, &(0..size), Some(&data)).unwrap();
        let read = |file: &File| {
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(read(&file) == read(&other));
        assert_eq!(data_of(&other, size).unwrap(), data);
        write_sparsely(&file, &[[0; 8192], [1; 8192], [0; 8192]].concat()).unwrap();
        assert!(file.metadata().unwrap().blocks() <= 32);
        let whole = tempfile::tempfile().unwrap();
        whole.write_all_at(&[1; 100_000], 0).unwrap();
        assert_eq!(data_of(&whole, 100_000), None);
    }

    #[test]
    fn what_is_beside_a_hole_or_a_copy_stays() {
        const SIZE: usize = 1 << 20;
        let (ones, twos) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        ones.write_all_at(&vec![1; SIZE], 0).unwrap();
        twos.write_all_at(&vec![2; SIZE], 0).unwrap();
        let bytes = || {
            let mut bytes = vec![9; SIZE];
            ones.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let mut expected = vec![1; SIZE];
        // Neither begins nor ends where a block of the disk does.
        for (make, start, end) in [
            (make_hole as fn(&File, &Range<u64>) -> _, 100_001, 300_002),
            (write_zeros, 200_001, 600_002),
        ] {
            make(&ones, &(start as u64..end as u64)).unwrap();
            expected[start..end].fill(0);
            assert!(bytes() == expected);
        }
        write_zeros(&ones, &(SIZE as u64..2 * SIZE as u64)).unwrap();
        assert_eq!(
            ones.metadata().unwrap().len(),
            SIZE as u64,
            "it is no longer"
        );
        let (start, end) = (300_003, 700_004);
        copy(&twos, &ones, &(start as u64..end as u64), None).unwrap();
        expected[start..end].fill(2);
        assert!(bytes() == expected);
    }

    #[test]
    fn what_is_written_sparsely_is_what_was_to_be_written() {
        let file = tempfile::tempfile().unwrap();
        let bytes = [&[0; 8192][..], &[1; 8192], &[0; 8192], &[2; 100]].concat();
        write_sparsely(&file, &bytes).unwrap();
        let mut read = vec![9; bytes.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == bytes);
        assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
    }

    /// Between file systems the system does not copy.
    #[cfg(target_os = "linux")]
    #[test]
    fn bytes_are_copied_from_another_file_system_too() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let memory = File::from(memfd_create("copied", MemfdFlags::empty()).unwrap());
        let disk = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..2 * BUFFER + 5).map(|i| (i >> 8) as u8).collect();
        memory.write_all_at(&content, 0).unwrap();
        copy(&memory, &disk, &(0..content.len() as u64), None).unwrap();
        let mut copied = vec![9; content.len()];
        disk.read_exact_at(&mut copied, 0).unwrap();
        assert!(copied == content);
    }

    #[test]
    fn holes_that_are_not_worth_a_word_are_data() {
        let (file, size) = (tempfile::tempfile().unwrap(), 4 << 20);
        // Edges of holes are blocks of the disk, of 64 KiB at most.
        let at = [0, 1 << 20, (1 << 20) + 2 * MIN_HOLE, 3 << 20];
        file.set_len(size).unwrap();
        for at in at {
            file.write_all_at(&[1; MIN_HOLE as usize], at).unwrap();
        }
        let Some(data) = data_of(&file, size) else {
            eprintln!("skipped: this file system tells of no holes");
            return;
        };
        let told = |start| start..start + MIN_HOLE;
        assert_eq!(data, at.map(told));
        // Of too many the last one goes to the end, so that no data is taken for a hole.
        let seek = |from| rustix::fs::seek(&file, from);
        for most in 2..=at.len() {
            let mut fewer = data[..most].to_vec();
            fewer[most - 1].end = size;
            assert_eq!(ranges_of(seek, size, most).unwrap(), fewer);
        }
        assert_eq!(ranges_of(seek, size, at.len() + 1).unwrap(), data);
        // Shorter ones at the beginning, between data and at the end, if blocks are short enough for any.
        let less = MIN_HOLE - 4096;
        let file = tempfile::tempfile().unwrap();
        let size = (3 << 20) + MIN_HOLE + less;
        file.set_len(size).unwrap();
        for at in [less, less + 2 * MIN_HOLE - 4096, 3 << 20] {
            file.write_all_at(&[1; MIN_HOLE as usize], at).unwrap();
        }
        let end = less + 3 * MIN_HOLE - 4096;
        assert_eq!(data_of(&file, size).unwrap(), [0..end, 3 << 20..size]);
    }

    /// A session with parts of less than a block on average ends at its receiver.
    #[test]
    fn wherever_data_begins_and_ends_it_is_told_in_whole_blocks() {
        const SIZE: u64 = (4 << 20) + 1;
        // As of a file system in a user's program: within a block, with a block, and just short of one.
        let odd = [
            (1 << 20) + 1..(1 << 20) + 2,
            (2 << 20)..(2 << 20) + BLOCK,
            (3 << 20) - 1..(3 << 20) + BLOCK - 1,
        ];
        let seek = |from| match from {
            SeekFrom::Data(at) => {
                let range = odd.iter().find(|range| range.end > at);
                range.map(|range| range.start.max(at)).ok_or(Errno::NXIO)
            }
            SeekFrom::Hole(at) => {
                let range = odd.iter().find(|range| range.contains(&at));
                Ok(range.map_or(at, |range| range.end))
            }
            _ => Err(Errno::INVAL),
        };
        let whole = [
            (1 << 20)..(1 << 20) + BLOCK,
            (2 << 20)..(2 << 20) + BLOCK,
            (3 << 20) - BLOCK..(3 << 20) + BLOCK,
        ];
        assert_eq!(ranges_of(seek, SIZE, 9).unwrap(), whole);
        // The file's end is one of a block.
        let to_the_end = ranges_of(seek, (3 << 20) + 1, 9).unwrap();
        assert_eq!(to_the_end.last(), Some(&((3 << 20) - BLOCK..(3 << 20) + 1)));
    }
}
