//! What packages install beside the program.

use std::fs;
use std::process::{Command, Stdio};

fn dfcp(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_dfcp"))
        .args(arguments)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man");
    dfcp(&["manual", pages.to_str().unwrap()]);
    for command in ["", "-send", "-recv", "-cp", "-sync", "-rendezvous", "-key"] {
        let page = fs::read_to_string(pages.join(format!("dfcp{command}.1"))).unwrap();
        assert!(
            page.starts_with(".") && page.contains("SYNOPSIS"),
            "{command}"
        );
    }
}

/// Who has just installed it looks here first.
#[test]
fn the_help_says_what_the_program_is_for_and_what_to_type_first() {
    let help = String::from_utf8(dfcp(&["-h"])).unwrap();
    let what = help.lines().next().unwrap();
    assert!(what.contains("files"), "{what}");
    for command in ["dfcp cp ", "dfcp send ", "dfcp recv CODE", "dfcp doctor "] {
        assert!(help.contains(command), "{help}");
    }
    let dir = tempfile::tempdir().unwrap();
    dfcp(&["manual", dir.path().to_str().unwrap()]);
    let page = fs::read_to_string(dir.path().join("dfcp.1")).unwrap();
    let name = page.split_once(".SH NAME\n").unwrap().1.lines().next();
    assert_eq!(name.unwrap(), format!("dfcp \\- {what}"));
    // DST becomes like SRC: it is no directory to copy into.
    let sync = String::from_utf8(dfcp(&["sync", "-h"])).unwrap();
    assert!(sync.contains("what becomes like it"), "{sync}");
}

#[test]
fn exit_codes_are_in_the_pages_and_the_help_as_in_the_readme() {
    let readme = include_str!("../../../../README.md");
    let table = readme.split_once("| exit code | meaning |").unwrap().1;
    let rows = table
        .lines()
        .skip(2)
        .map_while(|row| row.strip_prefix("| "));
    let rows: Vec<_> = rows
        .map(|row| row.trim_end_matches(" |").replace('`', ""))
        .collect();
    assert_eq!(rows.len(), 10);
    let dir = tempfile::tempdir().unwrap();
    dfcp(&["manual", dir.path().to_str().unwrap()]);
    let help = String::from_utf8(dfcp(&["--help"])).unwrap();
    for row in rows {
        let (code, meaning) = row.split_once(" | ").unwrap();
        for command in ["", "-send", "-recv", "-cp", "-sync"] {
            let page = fs::read_to_string(dir.path().join(format!("dfcp{command}.1"))).unwrap();
            let codes = page.split_once("EXIT STATUS").unwrap().1.replace('\\', "");
            assert!(
                codes.contains(&format!("\n{code}\n{meaning}\n")),
                "{row}: {codes}"
            );
        }
        assert!(
            help.contains(code) && help.contains(meaning),
            "{row}: {help}"
        );
    }
}

#[test]
fn shells_understand_the_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = dfcp(&["completions", shell]);
        assert!(String::from_utf8_lossy(&script).contains("rendezvous"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("completions");
        fs::write(&path, script).unwrap();
        let parsed = Command::new(shell)
            .arg("-n")
            .arg(&path)
            .stderr(Stdio::inherit())
            .status();
        match parsed {
            Ok(status) => assert!(status.success(), "{shell}"),
            Err(_) => eprintln!("skipped: {shell} is not installed"),
        }
    }
}
