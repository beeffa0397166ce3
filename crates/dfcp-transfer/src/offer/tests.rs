//! What a receiver accepts of an offer.

use super::*;

const EVERYTHING: Limits = Limits {
    bytes: u64::MAX,
    files: u64::MAX,
    hidden: true,
    any_names: true,
};

fn file(path: &str) -> Entry {
    Entry {
        path: path.into(),
        ..Entry::default()
    }
}

fn directory(path: &str) -> Entry {
    Entry {
        directory: true,
        ..file(path)
    }
}

fn check(entries: &[Entry]) -> Result<Vec<Entry>, Rejection> {
    check_within(entries, EVERYTHING)
}

fn check_within(entries: &[Entry], limits: Limits) -> Result<Vec<Entry>, Rejection> {
    pass_on(entries, &People::default(), limits).map(|offered| offered.entries)
}

/// What a receiver makes of an offer's messages.
fn pass_on(entries: &[Entry], people: &People, limits: Limits) -> Result<Offered, Rejection> {
    let mut offer = Offer::new(limits, &Memory::default());
    for message in split(entries, Wishes::default(), people) {
        let message = serde_json::to_vec(&message).unwrap();
        assert!(message.len() <= MAX_MESSAGE);
        let FromSender::Offer {
            version,
            entries,
            people,
            ..
        } = serde_json::from_slice(&message).unwrap()
        else {
            panic!("not an offer")
        };
        offer.add(version, entries, people)?;
    }
    offer.finish()
}

#[test]
fn links_that_lead_out_are_rejected() {
    let link = |path: &str, link| Entry {
        link: Some(link),
        ..file(path)
    };
    let symbolic = |path, to: &str| check(&[link(path, Link::Symbolic(to.into()))]).is_ok();
    for bad in [
        "/",
        "/etc",
        "",
        "..",
        "../..",
        "../../x",
        "x/../../y",
        "x/..",
        "./..",
        "././../x",
        "a\0b",
    ] {
        assert!(!symbolic("tree/l", bad), "{bad:?}");
    }
    for good in ["x", "x/y", "./x", "...", "x/."] {
        assert!(symbolic("tree/l", good), "{good:?}");
    }
    assert!(symbolic("tree/a/b/l", "../../x") && !symbolic("tree/a/b/l", "../../../x"));
    assert!(symbolic("tree/a/b/l", "./..//./../x"));
    assert!(!symbolic("l", "x"), "it is in no tree");
    // Nothing goes through a link, and it has no bytes.
    let up = link("t/a", Link::Symbolic("b".into()));
    assert!(check(&[up.clone(), file("t/a/x")]).is_err());
    assert!(
        check(&[Entry {
            size: 1,
            ..up.clone()
        }])
        .is_err()
    );
    assert!(
        check(&[Entry {
            directory: true,
            ..up
        }])
        .is_err()
    );
    let hard = |to| {
        check(&[
            directory("d"),
            file("a"),
            link("b", Link::Hard(to)),
            file("c"),
        ])
    };
    assert!(hard(1).is_ok() && hard(0).is_err() && hard(2).is_err() && hard(3).is_err());
    assert!(hard(u64::MAX).is_err());
}

#[test]
fn hostile_lists_are_rejected() {
    assert!(check(&[file("a"), file("a")]).is_err());
    assert!(check(&[file("a/b"), file("a")]).is_err());
    assert!(check(&[file("a"), file("a-"), file("a/b/c")]).is_err());
    assert!(check(&[directory("a"), file("a/b")]).is_ok());
    let huge = |path| Entry {
        size: u64::MAX / 2,
        ..file(path)
    };
    assert!(check(&[huge("a"), huge("b"), huge("c")]).is_err());
    let with_data = |data| Entry {
        size: 5,
        data: Some(data),
        ..file("a")
    };
    assert!(check(&[with_data(5)]).is_ok() && check(&[with_data(6)]).is_err());
    for (version, older) in [
        (0, "sender's dfcp is older"),
        (VERSION - 1, "sender's dfcp is older"),
        (VERSION + 1, "receiver's dfcp is older"),
    ] {
        let mut offer = Offer::new(EVERYTHING, &Memory::default());
        let refused = offer.add(version, vec![], People::default()).unwrap_err();
        assert!(refused.message.contains(older), "{refused}");
    }
}

/// Each part fits into a message, which `pass_on` asserts, whatever makes the entries long.
#[test]
fn entries_of_any_kind_fit_into_messages() {
    // Quotes take two bytes of JSON each.
    let component = "\"".repeat(250);
    let long = [&*component; 15].join("/");
    let attributes = |count: usize, value: usize| Meta {
        attributes: vec![("user.x".into(), "\"".repeat(value)); count],
        owner: Some((u32::MAX, u32::MAX)),
        incomplete: true,
    };
    for each in [
        file(""),
        Entry {
            link: Some(Link::Symbolic(long[..3000].into())),
            ..file("")
        },
        Entry {
            meta: Some(Box::new(attributes(1, 20_000))),
            ..file("")
        },
        Entry {
            meta: Some(Box::new(attributes(100, 1))),
            ..file("")
        },
    ] {
        for path in ["d".to_owned(), long.clone()] {
            let of = |i| Entry {
                path: format!("{path}/{i}"),
                mtime: i64::MIN,
                ..each.clone()
            };
            let entries: Vec<_> = (0..300).map(of).collect();
            assert!(entries.iter().all(fits));
            assert_eq!(check(&entries).unwrap(), entries);
        }
    }
}

#[test]
fn long_lists_are_split_and_joined() {
    let entries: Vec<_> = (0..5000)
        .map(|i| file(&format!("d/{i}\"{}", "n".repeat(99))))
        .collect();
    assert!(split(&entries, Wishes::default(), &People::default()).len() > 5);
    assert_eq!(check(&entries).unwrap(), entries);
    assert_eq!(split(&[], Wishes::default(), &People::default()).len(), 1);
    let part: Vec<_> = (0..100_000).map(|_| file("")).collect();
    let mut flood = Offer::new(EVERYTHING, &Memory::default());
    let mut add = || flood.add(VERSION, part.clone(), People::default());
    let parts = (0..).take_while(|_| add().is_ok()).count();
    assert_eq!(parts, MAX_ENTRIES / part.len());
}

#[test]
fn what_an_offer_takes_of_memory_counts_whatever_it_is_made_of() {
    let limits = Limits {
        files: 10_000,
        ..EVERYTHING
    };
    // Two strings and their place in a list for an attribute, a string for each of the others: 48 bytes and
    // 24 on 64-bit machines, whatever is in them. Half of the memory is for one offer.
    let most = |each: u64| (limits.held() / 2 / each) as usize;
    let attributes = Entry {
        meta: Some(Box::new(Meta {
            attributes: vec![("user.x".into(), String::new()); 1000],
            ..Meta::default()
        })),
        ..file("x")
    };
    let link = Entry {
        link: Some(Link::Symbolic("x".repeat(4000))),
        ..file("x")
    };
    let people = |users: usize| People {
        users: vec![(7, "x".repeat(4000)); users],
        ..People::default()
    };
    for (entries, people, each) in [
        (vec![attributes], people(0), 48_000),
        (vec![link], people(0), 4000),
        (vec![file(&"x".repeat(4000))], people(0), 4000),
        (vec![], people(1), 4000),
    ] {
        let mut offer = Offer::new(limits, &Memory::default());
        let mut add = || offer.add(VERSION, entries.clone(), people.clone()).is_ok();
        let count = (0..10_000).take_while(|_| add()).count();
        assert!(
            (1..most(each)).contains(&count),
            "{count} of {}",
            most(each)
        );
    }
}

#[test]
fn the_room_that_a_list_keeps_for_more_counts_as_well() {
    let memory = Memory::default();
    let mut offer = Offer::new(EVERYTHING, &memory);
    for i in 0..20_000 {
        let one = vec![file(&format!("{i}"))];
        offer.add(VERSION, one, People::default()).unwrap();
        let list = offer.entries.capacity() * size_of::<Entry>();
        assert!(
            memory.taken() >= list as u64,
            "{} of {list}",
            memory.taken()
        );
    }
    let entries = 20_000 * size_of::<Entry>() as u64;
    assert!(
        memory.taken() < entries * 3 / 2,
        "{} for {entries}",
        memory.taken()
    );
}

#[test]
fn offers_share_the_memory_that_there_is_for_them() {
    let limits = Limits {
        files: 10_000,
        ..EVERYTHING
    };
    // As long as names may be, with as many as are taken.
    let part: Vec<Entry> = (0..100).map(|i| file(&format!("{i:0>240}"))).collect();
    let held = Memory::default();
    let grow = |offer: &mut Offer| {
        (0..100)
            .take_while(|_| offer.add(VERSION, part.clone(), People::default()).is_ok())
            .count()
    };
    let mut greedy: Vec<Offer> = (0..20).map(|_| Offer::new(limits, &held)).collect();
    let parts: Vec<usize> = greedy.iter_mut().map(grow).collect();
    assert!(parts[0] > parts[1] && parts[1] > parts[2], "{parts:?}");
    assert!(held.taken() <= limits.held() + 100 * 400 * 20);
    drop(greedy);
    assert_eq!(held.taken(), 0);
    assert_eq!(grow(&mut Offer::new(limits, &held)), parts[0]);
}

#[test]
fn offers_beyond_the_limits_are_rejected() {
    let limit = |entries: &[Entry], limits| {
        let rejection = check_within(entries, limits).map_err(|rejection| rejection.kind);
        rejection == Err(RejectionKind::Limit)
    };
    let sized = |path, size| Entry { size, ..file(path) };
    let bytes = |bytes| Limits {
        bytes,
        ..Limits::default()
    };
    let two = [sized("a", 60), sized("b", 40)];
    assert!(!limit(&two, bytes(100)) && limit(&two, bytes(99)));
    let files = |files| Limits {
        files,
        ..Limits::default()
    };
    // Directories count, also those that only paths name.
    let deep = [file("a/b/c"), file("a/b/d"), directory("e")];
    assert!(!limit(&deep, files(5)) && limit(&deep, files(4)) && limit(&deep, files(2)));
    for hidden in [".bashrc", "a/.ssh/x", "...", "a/.b"] {
        assert!(limit(&[file(hidden)], Limits::default()), "{hidden}");
        assert!(check(&[file(hidden)]).is_ok());
    }
    assert!(!limit(&[file("a.b/c.")], Limits::default()));
    for odd in [r"\1b[2J", r"d/\ff"] {
        assert!(limit(&[file(odd)], Limits::default()), "{odd}");
    }
}

#[test]
fn names_that_are_not_taken_are_left_out_of_what_is() {
    let link = |path: &str, to| Entry {
        link: Some(Link::Hard(to)),
        ..file(path)
    };
    let offer = [
        directory("a"),
        directory("a/.git"),
        file("a/.git/config"),
        directory("a/.git/hooks"),
        file("a/b"),
        file(r"a/caf\e9"),
        link("a/c", 2),
        link("a/d", 4),
    ];
    let refused = |limits, offer: &[Entry]| {
        pass_on(offer, &People::default(), limits).map(|offered| offered.refused)
    };
    let all = refused(EVERYTHING, &offer).unwrap();
    assert!(all.places.is_empty() && all.notes.take().is_empty());
    let some = refused(Limits::default(), &offer).unwrap();
    assert_eq!(some.places, [1, 2, 3, 5, 6].into());
    let notes = some.notes.take();
    for (path, why) in [
        ("a/.git", "--hidden"),
        (r"a/caf\e9", "--any-names"),
        ("a/c", "another name"),
    ] {
        let is_told = |left: &crate::LeftOut| left.path == path && left.why.contains(why);
        assert!(notes.iter().any(is_told), "{notes:?}");
    }
    // Directories alone are not what somebody waits for.
    let none = refused(Limits::default(), &offer[..4]).unwrap_err();
    assert_eq!(none.kind, RejectionKind::Limit);
    assert!(none.message.starts_with("a/.git: the name"), "{none}");
    let directories = [directory("a"), directory("a/b")];
    assert!(refused(Limits::default(), &directories).is_ok());
}

/// A receiver keeps the list while it asks somebody: texts of any kind are counted.
#[test]
fn what_a_list_says_beside_paths_counts_as_well() {
    // A session alone may have half of 64,000 bytes.
    let limits = Limits {
        files: 100,
        ..EVERYTHING
    };
    let taken = |entry: Entry, people: People| {
        let mut offer = Offer::new(limits, &Memory::default());
        offer.add(VERSION, vec![entry], people).is_ok()
    };
    for (length, fits) in [(30_000, true), (32_000, false)] {
        let text = "x".repeat(length);
        let meta = |name: &str, value: &str| Entry {
            meta: Some(Box::new(Meta {
                attributes: vec![(name.into(), value.into())],
                ..Meta::default()
            })),
            ..file("x")
        };
        let nobody = People::default;
        assert_eq!(taken(file(&text), nobody()), fits);
        assert_eq!(taken(meta("user.x", &text), nobody()), fits);
        assert_eq!(taken(meta(&text, "value"), nobody()), fits);
        let link = Entry {
            link: Some(Link::Symbolic(text.clone())),
            ..file("x")
        };
        assert_eq!(taken(link, nobody()), fits);
        for groups in [false, true] {
            let name = vec![(1, text.clone())];
            let people = match groups {
                true => People {
                    groups: name,
                    ..nobody()
                },
                false => People {
                    users: name,
                    ..nobody()
                },
            };
            assert_eq!(taken(file("x"), people), fits);
        }
    }
    // Many short ones take what lists of them take.
    let many = |n| Entry {
        meta: Some(Box::new(Meta {
            attributes: vec![("a".into(), "b".into()); n],
            ..Meta::default()
        })),
        ..file("x")
    };
    assert!(taken(many(100), People::default()));
    assert!(!taken(many(700), People::default()));
}

#[test]
fn an_entry_with_long_attributes_has_a_message_of_its_own_or_none() {
    let with = |length: usize| Entry {
        meta: Some(Box::new(Meta {
            attributes: vec![("user.x".into(), "\"".repeat(length))],
            ..Meta::default()
        })),
        ..file("x")
    };
    assert!(fits(&with(32_000)) && !fits(&with(32_700)));
    let mut entries = [with(32_000), with(32_000), with(100)];
    for (i, entry) in entries.iter_mut().enumerate() {
        entry.path = i.to_string();
    }
    assert_eq!(check(&entries).unwrap().len(), 3);
}

#[test]
fn names_of_owners_arrive_with_the_list() {
    let named = |names: &[(u32, &str)]| -> Vec<_> {
        names.iter().map(|(id, n)| (*id, (*n).to_owned())).collect()
    };
    let many: Vec<_> = (0..3000).map(|id| (id, format!("user{id}"))).collect();
    for (users, groups) in [
        (named(&[(1000, "ada")]), Vec::new()),
        (Vec::new(), named(&[(50, "staff"), (60, "games")])),
        (named(&[(1000, "ada")]), named(&[(50, "staff")])),
        (many, Vec::new()),
    ] {
        let people = People { users, groups };
        let offered = pass_on(&[file("a")], &people, EVERYTHING).unwrap();
        assert_eq!(offered.people, people);
    }
}

#[test]
fn sizes_are_those_of_files() {
    let sized = |size, entry: Entry| check(&[Entry { size, ..entry }]).is_ok();
    let most = i64::MAX as u64;
    assert!(sized(most, file("a")) && !sized(most + 1, file("a")));
    let stream = Entry {
        stream: true,
        ..file("a")
    };
    for other in [directory("a"), stream] {
        assert!(sized(0, other.clone()) && !sized(1, other));
    }
    // Together they are no more than one may be.
    let two = |last| {
        let of = |path, size| Entry { size, ..file(path) };
        check(&[of("a", most - 5), of("b", last)]).is_ok()
    };
    assert!(two(5) && !two(6));
}

#[test]
fn as_many_people_have_names_as_share_files() {
    let named = |count: usize| vec![(7, String::new()); count];
    for (users, groups, is_taken) in [
        (MAX_PEOPLE, 0, true),
        (0, MAX_PEOPLE, true),
        (MAX_PEOPLE, 1, false),
        (1, MAX_PEOPLE, false),
    ] {
        let people = People {
            users: named(users),
            groups: named(groups),
        };
        let taken = pass_on(&[file("a")], &people, EVERYTHING);
        assert_eq!(taken.is_ok(), is_taken, "{users} {groups}");
    }
}

/// A part without files is a part, too: what the sender would have it is in the first one.
#[test]
fn names_alone_begin_an_offer() {
    let mut offer = Offer::new(EVERYTHING, &Memory::default());
    assert!(offer.is_empty());
    let people = People {
        users: vec![(7, "ada".into())],
        ..People::default()
    };
    offer.add(VERSION, vec![], people.clone()).unwrap();
    assert!(!offer.is_empty());
    let mut offer = Offer::new(EVERYTHING, &Memory::default());
    offer
        .add(VERSION, vec![file("a")], People::default())
        .unwrap();
    assert!(!offer.is_empty());
    let parts = split(
        &[file("a")],
        Wishes {
            anew: true,
            ..Wishes::default()
        },
        &people,
    );
    let told = parts.iter().map(|part| match part {
        FromSender::Offer { more, wishes, .. } => (*more, wishes.anew),
        other => panic!("{other:?}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), [(true, true), (false, false)]);
}

/// A receiver gives an offer the time that its bytes take on a slow path, as far as its content explains them.
#[test]
fn all_bytes_of_an_honest_offer_are_explained() {
    // Each character is two in a message.
    let name = |id: u32| (id, format!("{}{id}", "\"".repeat(40)));
    let people = People {
        users: (0..2000).map(name).collect(),
        groups: (0..700).map(name).collect(),
    };
    let entries: Vec<_> = (0..500).map(|i| file(&format!("\"{i}\""))).collect();
    for part in split(&entries, Wishes::default(), &people) {
        let json = serde_json::to_vec(&part).unwrap().len();
        let FromSender::Offer {
            entries, people, ..
        } = part
        else {
            panic!("an offer");
        };
        let explained = most_bytes(&entries, &people);
        assert!(
            json as u64 <= explained,
            "{json} bytes, {explained} explained"
        );
    }
}

#[test]
fn directories_are_looked_at_once_however_many_files_are_in_them() {
    const FILES: usize = 1000;
    let deep = "d/".repeat(99);
    let entries: Vec<_> = (0..FILES).map(|i| file(&format!("{deep}{i}"))).collect();
    let offer = Offer::new(EVERYTHING, &Memory::default());
    let mut places = BTreeMap::new();
    let looks = entries
        .iter()
        .map(|entry| offer.check_parents(&entry.path, &mut places));
    assert_eq!(looks.map(Result::unwrap).sum::<usize>(), 99 + FILES - 1);
    // A file in the way is found from either side, beside directories that are known.
    let (above, below) = (file("a/b"), file("a/b/c/d"));
    for entries in [[above.clone(), below.clone()], [below, above]] {
        let known = [directory("a"), file("a/x/y")];
        let all: Vec<_> = known.into_iter().chain(entries).collect();
        let rejection = check(&all).unwrap_err();
        assert_eq!(rejection.message, "a/b/c/d leads through a file");
    }
}
