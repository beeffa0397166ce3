//! Names that one of the two machines cannot hold: each is said, the rest goes on, and the exit code is 3.

use std::fs;
use std::path::Path;

use crate::common::machines::{Machines, PROGRAM};
use crate::common::run;
use serde_json::Value;

/// What is longer few file systems hold (`NAME_MAX` of Linux).
const LONGEST: usize = 255;

/// Copies, and ends with code 3: what failed, and what was left out.
fn in_part(machines: &Machines, arguments: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let (code, report, said) = run(machines.cp(arguments).args(["--remote-path", PROGRAM]));
    assert_eq!((code, &report["exit_code"]), (3, &3.into()), "{said}");
    let list = |key: &str| report[key].as_array().unwrap().clone();
    let all = (list("problems"), list("left_out"));
    // Also for people, and with few words wanted.
    let (_, _, said) = run(machines
        .cp(arguments)
        .args(["-q", "--remote-path", PROGRAM]));
    for one in all
        .0
        .iter()
        .map(|p| &p["message"])
        .chain(all.1.iter().map(|l| &l["why"]))
    {
        assert!(
            said.contains(one.as_str().unwrap()),
            "{one} is not in {said}"
        );
    }
    all
}

#[test]
fn a_name_that_the_target_cannot_hold_fails_alone() {
    let machines = Machines::new("");
    let long = "x".repeat(LONGEST);
    // Large files have partial files beside them, small ones come in packs.
    for (name, size) in [(long.as_str(), 300_000), ("small", 1000), ("y", 400_000)] {
        machines.write(&machines.here("tree").join(name), size);
    }
    machines.write(&machines.here("tree/deep").join(&long), 10);
    machines.copies(&["-r", "tree", "there:"]);
    for name in [&long, "small", "y", &format!("deep/{long}")] {
        let path = machines.here("tree").join(name);
        let mut content = fs::read(&path).unwrap();
        content.push(b'!');
        fs::write(path, content).unwrap();
    }
    let arguments = ["-r", "tree", "there:", "--on-conflict", "rename"];
    let (problems, left_out) = in_part(&machines, &arguments);
    assert_eq!(left_out, [] as [Value; 0]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    for problem in &problems {
        let message = problem["message"].as_str().unwrap();
        assert!(message.contains("cannot hold this name"), "{message}");
        assert!(problem["path"].as_str().unwrap().ends_with(&long));
    }
    for name in ["small", "y"] {
        let renamed = machines.there("tree").join(format!("{name}.1"));
        let content = fs::read(machines.here("tree").join(name)).unwrap();
        assert!(fs::read(renamed).unwrap() == content, "{name}");
    }
    // A target that no file system holds.
    let target = format!("there:{}", "x".repeat(LONGEST + 1));
    machines.fails(&["tree/small", &target], 7, "too long");
}

/// The list of a tree may have paths of 4000 bytes and 100 components; files further down are left out.
#[test]
fn a_path_that_is_too_long_is_left_out_alone() {
    let machines = Machines::new("");
    let content = machines.write(&machines.here("tree/near"), 100);
    let go_down = |from: &Path, name: &str, times: usize| {
        let mut path = from.to_owned();
        for _ in 0..times {
            path.push(name);
        }
        fs::create_dir_all(&path).unwrap();
        path
    };
    let tree = machines.here("tree");
    fs::write(go_down(&tree, "a", 97).join("file"), "deep enough").unwrap();
    go_down(&tree, "b", 110);
    let wide = "w".repeat(250);
    go_down(&tree, &wide, 15);
    let too_long = tree.join([wide.as_str(); 15].join("/"));
    let too_long = too_long.join("v".repeat(240));
    // Its absolute path may be too long to be made here.
    let made = fs::write(&too_long, "x").is_ok();
    let (problems, left_out) = in_part(&machines, &["-r", "tree", "there:"]);
    assert_eq!(problems, [] as [Value; 0]);
    let whys: Vec<_> = left_out
        .iter()
        .map(|l| l["why"].as_str().unwrap())
        .collect();
    let has = |words: &str| whys.iter().any(|why| why.contains(words));
    assert!(has("100 directories deep"), "{whys:?}");
    assert!(!made || has("4000 bytes"), "{whys:?}");
    assert!(fs::read(machines.there("tree/near")).unwrap() == content);
    let deep = machines.there("tree").join(["a"; 97].join("/"));
    assert_eq!(fs::read(deep.join("file")).unwrap(), b"deep enough");
}
