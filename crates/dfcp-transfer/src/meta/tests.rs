//! What is kept of files beside their content.

use super::*;

#[test]
fn lists_are_read_as_linux_writes_them_and_damaged_ones_too() {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, id) in [
        (1_u16, u32::MAX),
        (2, 1000),
        (4, u32::MAX),
        (8, 50),
        (16, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(7_u16.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let ids: Vec<_> = named(&acl).map(|(_, id)| id).collect();
    assert_eq!(ids, [1000, 50]);
    let known = Known::default();
    for cut in 0..=acl.len() {
        assert_eq!(known.acl(&acl[..cut], Owners::Names), &acl[..cut]);
    }
}

#[test]
fn a_name_never_makes_a_superuser() {
    let people = People {
        users: vec![(1234, "root".into())],
        groups: vec![],
    };
    let known = Known::new(&people);
    assert_eq!(known.owner((1234, 0), Owners::Names), Some((1234, 0)));
    assert_eq!(known.owner((0, 7), Owners::Numbers), Some((0, 7)));
    assert_eq!(known.owner((0, 7), Owners::Receiver), None);
}

#[test]
fn a_name_stands_for_the_number_that_it_has_here() {
    let root = Known::new(&People {
        users: vec![(7, "nobody-has-this-name".into()), (8, "x".into())],
        groups: vec![],
    });
    let numbers = |name: &str| match name {
        "x" => Some(1008),
        _ => None,
    };
    let find = |id| root.users.find(id, numbers);
    // A name that nobody has here, one that somebody has, one that was not told.
    assert_eq!([7, 8, 9].map(find), [7, 1008, 9]);
    // Each is looked up once.
    let again = |id| root.users.find(id, |_| panic!("it is known"));
    assert_eq!([7, 8].map(again), [7, 1008]);
    assert_eq!(root.groups.find(8, numbers), 8, "a group is no user");
}

#[test]
fn what_cannot_be_set_is_told_of_by_its_kind() {
    let file = tempfile::tempfile().unwrap();
    let known = Known::default();
    let taking = Taking {
        keep: Keep {
            attributes: true,
            acls: true,
            ..Keep::default()
        },
        exact: Exact::default(),
        known: &known,
    };
    // Neither is one anywhere: a name with nothing behind its namespace, a list of a wrong version.
    for (name, value, kind) in [
        ("user.", "x", "extended attribute"),
        (ACLS[0], "nonsense", "access control list"),
    ] {
        let meta = Meta {
            attributes: vec![(name.into(), value.into())],
            ..Meta::default()
        };
        let mut told = Vec::new();
        taking.write(&file, Some(&meta), |why| told.push(why));
        let expected = format!("its {kind} {name}: ");
        assert!(
            told.len() == 1 && told[0].starts_with(&expected),
            "{told:?}"
        );
    }
}

#[test]
fn reasons_are_told_once_with_how_many_they_are_of() {
    let notes = Notes::default();
    notes.add("a", "no room".into());
    notes.add("b", "no leave".into());
    notes.add("c", "no room".into());
    notes.add("d", "no room".into());
    let told: Vec<_> = notes.take().into_iter().map(|n| (n.path, n.why)).collect();
    assert_eq!(
        told,
        [
            ("b".into(), "no leave".into()),
            ("a".into(), "no room (and so of 2 more)".into())
        ]
    );
    assert_eq!(notes.take(), []);
    // However many reasons a sender invents.
    for i in 0..2 * MAX_NOTES {
        notes.add("a", format!("{i:05}"));
    }
    notes.add("b", "00000".into());
    let told = notes.take();
    assert_eq!(told.len(), MAX_NOTES);
    assert_eq!(told[0].why, "00000 (and so of 1 more)");
}

/// Those of the same kind that were not offered go where the sender says that it has said all.
#[test]
fn attributes_go_only_if_all_of_their_kind_were_said() {
    let file = tempfile::tempfile().unwrap();
    let set = |name: &str| rustix::fs::fsetxattr(&file, name, b"x", XattrFlags::empty());
    if set("user.offered").is_err() || set("user.other").is_err() {
        eprintln!("skipped: this file system has no attributes");
        return;
    }
    let known = Known::default();
    let changes = |user, attributes, incomplete| {
        let taking = Taking {
            keep: Keep {
                attributes,
                ..Keep::default()
            },
            exact: Exact {
                user,
                acls: true,
                trusted: true,
            },
            known: &known,
        };
        let meta = Meta {
            attributes: vec![("user.offered".into(), "x".into())],
            incomplete,
            ..Meta::default()
        };
        taking.changes(&file, Some(&meta))
    };
    assert_eq!(changes(true, true, false), [Change::Xattrs]);
    for (exact, kept, incomplete) in [
        (false, true, false),
        (true, true, true),
        (true, false, false),
    ] {
        assert_eq!(changes(exact, kept, incomplete), []);
    }
}

#[test]
fn what_is_not_taken_is_told_with_what_would_take_it() {
    let known = Known::default();
    let refusal = |name: &str, attributes| {
        let keep = Keep {
            attributes,
            ..Keep::default()
        };
        let taking = Taking {
            keep,
            exact: Exact::default(),
            known: &known,
        };
        taking.refusal(name)
    };
    assert_eq!(refusal("user.x", true), None);
    for (name, attributes, word) in [
        ("user.x", false, "-X"),
        ("security.x", true, "security.x"),
        (ACLS[0], true, "-A"),
    ] {
        let why = refusal(name, attributes).unwrap();
        assert!(why.contains(word), "{why}");
    }
}

/// Names go along of all whose numbers do: of owners, and of those in access control lists.
#[test]
fn whoever_is_named_by_number_is_named_by_name() {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, id) in [(2_u16, 0_u32), (8, 0), (2, u32::MAX - 5)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(7_u16.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let acl = name::encode(OsStr::from_bytes(&acl));
    let of = |owner, attribute: &str| {
        let meta = Meta {
            owner,
            attributes: vec![(attribute.to_owned(), acl.clone())],
            ..Meta::default()
        };
        let entry = Entry {
            meta: Some(Box::new(meta)),
            ..Entry::default()
        };
        let found = people([&entry, &Entry::default()].into_iter());
        let ids = |all: &[(u32, String)]| all.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert!(found.users.iter().all(|(_, name)| name == "root"));
        (ids(&found.users), ids(&found.groups))
    };
    assert_eq!(of(None, "user.x"), (vec![], vec![]));
    assert_eq!(of(Some((0, u32::MAX - 5)), "user.x"), (vec![0], vec![]));
    assert_eq!(of(Some((u32::MAX - 5, 0)), "user.x"), (vec![], vec![0]));
    for list in ACLS {
        assert_eq!(of(None, list), (vec![0], vec![0]));
    }
}

/// A list that names people is read with the numbers that they have here.
#[test]
fn access_control_lists_mean_the_same_people_here() {
    let list = |user: u32, group: u32| {
        let mut acl = vec![2, 0, 0, 0];
        for (tag, id) in [(1_u16, 77), (2, user), (8, group), (16, 77)] {
            acl.extend(tag.to_le_bytes());
            acl.extend(6_u16.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        acl
    };
    let here = |plus: u32| {
        let names = [77, 78].map(|id| (id, (String::new(), OnceLock::from(Some(id + plus)))));
        Names(BTreeMap::from(names))
    };
    let known = Known {
        users: here(1000),
        groups: here(2000),
    };
    assert_eq!(known.acl(&list(78, 77), Owners::Names), list(1078, 2077));
    assert_eq!(known.acl(&list(77, 78), Owners::Receiver), list(1077, 2078));
    assert_eq!(known.acl(&list(78, 77), Owners::Numbers), list(78, 77));
}

/// Nothing is asked of a file of which nothing was said, and nothing kept.
#[test]
fn a_file_is_looked_at_if_something_of_it_may_change() {
    let known = Known::default();
    let silent = |keep: (bool, bool), exact: (bool, bool, bool), meta: Option<&Meta>| {
        let taking = Taking {
            keep: Keep {
                attributes: keep.0,
                acls: keep.1,
                ..Keep::default()
            },
            exact: Exact {
                user: exact.0,
                trusted: exact.1,
                acls: exact.2,
            },
            known: &known,
        };
        taking.says_nothing(meta)
    };
    let some = Meta {
        attributes: vec![("user.x".into(), "y".into())],
        ..Meta::default()
    };
    let none = Meta::default();
    let nothing = (false, false, false);
    assert!(silent((true, true), nothing, None));
    assert!(silent((true, true), nothing, Some(&none)));
    assert!(!silent((false, false), nothing, Some(&some)));
    for (exact, attributes, acls) in [
        ((true, false, false), true, false),
        ((false, true, false), true, false),
        ((false, false, true), false, true),
    ] {
        assert!(!silent((attributes, acls), exact, None), "{exact:?}");
        assert!(silent((!attributes, !acls), exact, None), "{exact:?}");
    }
}

/// Who sees no attributes of `trusted` has not said that there are none.
#[test]
fn attributes_of_superusers_go_if_a_superuser_said_all_of_them() {
    let known = Known::default();
    let removes = |name: &str, user, trusted| {
        let taking = Taking {
            keep: Keep {
                attributes: true,
                ..Keep::default()
            },
            exact: Exact {
                user,
                trusted,
                acls: false,
            },
            known: &known,
        };
        taking.removes(name, None)
    };
    assert!(!removes("trusted.x", true, false));
    // Who makes a file owns it.
    let file = tempfile::tempfile().unwrap();
    let may = file.metadata().unwrap().uid() == 0;
    assert_eq!(removes("trusted.x", false, true), may);
    assert!(removes("user.x", true, false) && !removes("user.x", false, true));
}
