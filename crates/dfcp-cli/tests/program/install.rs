//! What packages install beside the program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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

/// A tree with what `make install` needs, where a program in place of cargo builds in no time.
fn source_tree(at: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in [
        "Makefile",
        "packaging/extras",
        "packaging/may-write",
        "scripts/toolchain",
    ] {
        fs::create_dir_all(at.join(file).parent().unwrap()).unwrap();
        fs::copy(root.join(file), at.join(file)).unwrap();
    }
    let cargo = at.join("tools/cargo");
    fs::create_dir_all(cargo.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in build | rustc) ;; *) exit 0 ;; esac\nmkdir -p \"${{CARGO_TARGET_DIR:-target}}/dist\"\n\
         cp {} \"${{CARGO_TARGET_DIR:-target}}/dist/dfcp\"\n",
        env!("CARGO_BIN_EXE_dfcp")
    );
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    cargo
}

/// Whether `make install` into `prefix` works with this in its environment, and what it said.
fn make_install(tree: &Path, prefix: &Path, environment: &[(&str, &Path)]) -> (bool, String) {
    let mut make = Command::new("make");
    make.current_dir(tree)
        .arg("install")
        .arg(format!("PREFIX={}", prefix.display()));
    make.env_remove("CARGO")
        .env_remove("MAKEFLAGS")
        .env_remove("CARGO_TARGET_DIR");
    for (name, value) in environment {
        make.env(name, value);
    }
    let output = make.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

#[test]
fn make_install_works_wherever_cargo_builds_and_without_it_where_it_has_built() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let cargo = source_tree(&tree);
    let elsewhere = dir.path().join("elsewhere");
    let prefix = dir.path().join("prefix");
    let cargo: (&str, &Path) = ("CARGO", &cargo);
    let (done, said) = make_install(&tree, &prefix, &[cargo, ("CARGO_TARGET_DIR", &elsewhere)]);
    assert!(done, "{said}");
    for file in [
        "bin/dfcp",
        "share/man/man1/dfcp-send.1",
        "share/bash-completion/completions/dfcp",
        "share/zsh/site-functions/_dfcp",
        "share/fish/vendor_completions.d/dfcp.fish",
    ] {
        assert!(prefix.join(file).exists(), "{file}");
    }
    // The superuser often has no cargo: what its user has built is installed.
    let (other, bare) = (dir.path().join("other"), dir.path().join("bare"));
    let nothing: (&str, &Path) = ("CARGO", Path::new("no-such-cargo"));
    let (done, said) = make_install(&tree, &other, &[nothing]);
    assert!(done && other.join("bin/dfcp").exists(), "{said}");
    fs::create_dir(&bare).unwrap();
    source_tree(&bare);
    let (done, said) = make_install(&bare, &other, &[nothing]);
    assert!(!done && said.contains("rustup.rs"), "{said}");
    // Where nothing can be written that is said before anything is built.
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let (done, said) = make_install(&bare, &file.join("prefix"), &[cargo]);
    assert!(!done && said.contains("PREFIX="), "{said}");
    assert!(!bare.join("target/dist").exists());
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

#[test]
fn fish_offers_words_where_a_command_takes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("completions");
    fs::write(&script, dfcp(&["completions", "fish"])).unwrap();
    fs::write(dir.path().join("some-file"), "").unwrap();
    let ask = |line: &str| {
        let mut fish = Command::new("fish");
        fish.args([
            "--no-config",
            "-c",
            "source completions; complete -C $argv[1]",
        ]);
        let output = fish.arg(line).current_dir(dir.path()).output().ok()?;
        let offered = String::from_utf8(output.stdout).unwrap();
        let words = offered.lines().filter_map(|line| line.split('\t').next());
        Some(words.map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(shells) = ask("dfcp completions ") else {
        eprintln!("skipped: fish is not installed");
        return;
    };
    assert_eq!(shells, ["bash", "elvish", "fish", "powershell", "zsh"]);
    let commands = ask("dfcp help ").unwrap();
    assert!(commands.contains(&"send".to_owned()), "{commands:?}");
    assert!(!commands.contains(&"some-file".to_owned()));
    assert_eq!(ask("dfcp help ser").unwrap(), ["serve"]);
    assert_eq!(ask("dfcp send some").unwrap(), ["some-file"]);
    assert_eq!(ask("dfcp proxy ser").unwrap(), ["serve"]);
}

/// On a terminal of its own, as zsh completes nothing elsewhere.
const ASK_ZSH: &str = r#"
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; stty cols 200; PS1='rea''dy>'"
    # Keys that come before its editor is there are not its editor's.
    zpty -r -m shell said '*ready>*'
    zpty -w -n shell "$2"$'\t'
    # What completes is answered before what follows is read.
    zpty -w -n shell $'\x15'"echo do''ne"$'\n'
    zpty -r -m shell said '*done*'
    print -r -- $said
"#;

#[test]
fn zsh_offers_a_commands_commands_beside_what_else_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("_dfcp"), dfcp(&["completions", "zsh"])).unwrap();
    let ask = |line: &str| {
        let mut zsh = Command::new("zsh");
        zsh.args(["-f", "-c", ASK_ZSH, "zsh"]).arg(dir.path());
        let output = zsh.arg(line).env("TERM", "dumb").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(commands) = ask("dfcp proxy ") else {
        eprintln!("skipped: zsh is not installed");
        return;
    };
    assert!(commands.contains("serve"), "{commands}");
    let options = ask("dfcp proxy serve --permit").unwrap();
    assert!(options.contains("--permit-listen"), "{options}");
    // Of what the server's name precedes, and of a value whose name has a colon.
    for line in ["dfcp proxy edge --redi", "dfcp proxy --socks "] {
        let said = ask(line).unwrap();
        assert!(!said.contains("not found"), "{said}");
        assert!(said.contains("--redirect") || line.ends_with(' '), "{said}");
    }
}

/// What bash offers for the last of these words; nothing where it is to look for files.
fn offered(script: &Path, words: &[&str]) -> Option<String> {
    let ask = r#"
        complete() { :; }
        source "$1"
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _dfcp dfcp "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[*]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["-c", ask, "bash"]).arg(script).args(words);
    let output = bash.output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn bash_offers_files_where_a_command_takes_them() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("completions");
    fs::write(&script, dfcp(&["completions", "bash"])).unwrap();
    let ask = |words: &[&str]| offered(&script, words);
    let Some(commands) = ask(&["dfcp", "s"]) else {
        eprintln!("skipped: bash is not installed");
        return;
    };
    assert_eq!(commands, "send sync serve");
    for command in ["send", "cp", "sync"] {
        assert_eq!(ask(&["dfcp", command, ""]).unwrap(), "", "{command}");
        let second = ask(&["dfcp", command, "-c", "file", ""]);
        assert_eq!(second.unwrap(), "", "{command}");
        let options = ask(&["dfcp", command, "--checks"]).unwrap();
        assert_eq!(options, "--checksum", "{command}");
    }
    assert_eq!(ask(&["dfcp", "completions", "z"]).unwrap(), "zsh");
    assert_eq!(ask(&["dfcp", "proxy", "ser"]).unwrap(), "serve");
    assert!(ask(&["dfcp", "key", ""]).unwrap().contains("show"));
}
