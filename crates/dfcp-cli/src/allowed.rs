//! Which senders a receiver takes files from. Nobody, unless somebody is named: a list that is
//! missing, empty or not safely kept allows nobody.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dfcp::{Admission, PublicKey, Rate};
use dfcp_command::{Failure, Kind, units};
use dfcp_proxy::Quota;

use crate::key_list::{ListFile, check_safe};
use crate::keys::config_file;

/// The list that counts when the command line has none.
const LIST: &str = "authorized_keys";

/// Whom `--allow` names: a key, or the file of a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// This key.
    Key(PublicKey),
    /// Those in this file.
    File(PathBuf),
}

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(key) => Ok(Self::Key(key)),
            // Not the name of a file: a key with a letter too few must not become one.
            Err(error) if text.starts_with("dfcp-") => Err(format!("{error}")),
            Err(_) => Ok(Self::File(text.into())),
        }
    }
}

/// What a line of a list says of its key beside that it is allowed: what a proxy gives it. A receiver of
/// files takes no notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Connections at once.
    pub max_streams: Option<u64>,
    /// Of these, associations of UDP.
    pub max_associations: Option<u64>,
    /// Rate each way.
    pub rate: Option<Rate>,
    /// Bytes in a period.
    pub quota: Option<Quota>,
    /// The first day on which it is not allowed any more, in days since 1970 (UTC).
    pub ends: Option<i64>,
}

impl KeyOptions {
    /// Whether it was allowed, and is not any more.
    #[expect(clippy::disallowed_methods)] // a day of the calendar is meant
    fn is_over(&self) -> bool {
        let today = SystemTime::now().duration_since(UNIX_EPOCH);
        let today = today.map_or(0, |since| since.as_secs() / (24 * 3600));
        self.ends.is_some_and(|ends| ends <= today as i64)
    }
}

/// A day of the calendar, `YYYY-MM-DD`, in days since 1970.
fn day(text: &str) -> Result<i64, String> {
    let wrong = || format!("not a day, such as 2027-12-31: {text:?}");
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    let [year, month, day] = text.split('-').collect::<Vec<_>>()[..] else {
        return Err(wrong());
    };
    if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return Err(wrong());
    }
    let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [
        31,
        if is_leap { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let before = |year: i64| 365 * year + year / 4 - year / 100 + year / 400;
    match usize::try_from(month - 1)
        .ok()
        .and_then(|month| lengths.get(month))
    {
        Some(length) if (1970..).contains(&year) && (1..=*length).contains(&day) => {
            let months: i64 = lengths.iter().take(month as usize - 1).sum();
            Ok(before(year - 1) - before(1969) + months + day - 1)
        }
        _ => Err(wrong()),
    }
}

impl FromStr for KeyOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let mut names = Vec::new();
        for option in text.split(',') {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if names.contains(&name) {
                return Err(format!("{name} is said twice"));
            }
            names.push(name);
            let number = || units::count(value);
            let wrong = |why: String| format!("{name}: {why}");
            match name {
                "max-streams" => match number().map_err(wrong)? {
                    // A key that may have nothing is better not in the list.
                    0 => return Err("max-streams: at least one".to_owned()),
                    streams => options.max_streams = Some(streams),
                },
                "max-associations" => options.max_associations = Some(number().map_err(wrong)?),
                "rate" => options.rate = Some(units::limit(value).map_err(wrong)?),
                "quota" => options.quota = Some(quota(value).map_err(wrong)?),
                // That day is the last.
                "until" => options.ends = Some(day(value).map_err(wrong)? + 1),
                _ => {
                    return Err(format!(
                        "no option of keys: {name:?}; there are max-streams=N, max-associations=N, \
                         rate=RATE, quota=BYTES/PERIOD, until=YYYY-MM-DD"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Bytes in a period: `10G/1d`.
pub fn quota(text: &str) -> Result<Quota, String> {
    let wrong = || format!("not BYTES/PERIOD, such as 10G/1d: {text:?}");
    let (bytes, period) = text.split_once('/').ok_or_else(wrong)?;
    let (bytes, period) = (units::count(bytes)?, units::age(period)?);
    match (bytes, period.is_zero()) {
        // A key that may have nothing is better not in the list.
        (0, _) => Err("a quota of nothing: at least one byte".to_owned()),
        (_, true) => Err(wrong()),
        _ => Ok(Quota { bytes, period }),
    }
}

/// Which senders may send.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    anyone: bool,
    keys: Vec<PublicKey>,
    /// Read for each client, so that what is added counts at once.
    files: Vec<Arc<ListFile>>,
    /// Whether they were named on the command line: then there is no doubt about others.
    named: bool,
}

impl Allowed {
    /// Whoever comes.
    pub fn anyone() -> Self {
        Self {
            anyone: true,
            named: true,
            ..Self::default()
        }
    }

    /// Those that are named, or else those in the user's own list.
    ///
    /// # Errors
    /// When a file that is named cannot be used.
    pub fn new(named: &[Who]) -> Result<Self, Failure> {
        Self::after(named, &Self::default())
    }

    /// The same, read again: a file that counted `before` and cannot be used any more allows nobody, as
    /// one that was emptied does.
    ///
    /// # Errors
    /// When another file that is named cannot be used.
    pub fn after(named: &[Who], before: &Self) -> Result<Self, Failure> {
        let mut allowed = Self {
            named: !named.is_empty(),
            ..Self::default()
        };
        for who in named {
            match who {
                Who::Key(key) => allowed.keys.push(*key),
                Who::File(path) => {
                    let known = before.files.iter().find(|file| file.path == *path);
                    let file = known
                        .cloned()
                        .unwrap_or_else(|| ListFile::new(path.clone()));
                    if known.is_none() {
                        let read = file.read();
                        read.map_err(|why| Failure::new(Kind::Authentication, why))?;
                    }
                    allowed.files.push(file);
                }
            }
        }
        if named.is_empty() {
            // Without a home there is no list.
            allowed.files.extend(config_file(LIST).map(ListFile::new));
        }
        Ok(allowed)
    }

    /// Whether `key` may send.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.anyone || self.keys.contains(key) || self.listed(key).is_some()
    }

    /// What becomes of a client with `key`.
    pub fn admission(&self, key: &PublicKey) -> Admission {
        match (self.contains(key), self.file_of(key)) {
            (true, _) => Admission::Welcome,
            (false, None) => Admission::Unknown,
            (false, Some(_)) => Admission::Expired,
        }
    }

    /// The list that has `key`, allowed or not.
    fn file_of(&self, key: &PublicKey) -> Option<&ListFile> {
        let has_it = |file: &&Arc<ListFile>| {
            let list = file.read();
            list.is_ok_and(|list| list.keys.iter().any(|(listed, _)| listed == key))
        };
        self.files.iter().find(has_it).map(Arc::as_ref)
    }

    /// Why `key` is not allowed, for who keeps the lists.
    pub fn why_not(&self, key: &PublicKey) -> String {
        match self.file_of(key) {
            Some(file) => format!("`until=` of its line in {} is over", file.path.display()),
            None => "no list of keys has it".to_owned(),
        }
    }

    /// What is said of `key`, where it is allowed.
    pub fn options(&self, key: &PublicKey) -> KeyOptions {
        self.listed(key).unwrap_or_default()
    }

    /// What the lists say of `key`, if they have it.
    fn listed(&self, key: &PublicKey) -> Option<KeyOptions> {
        let find = |file: &Arc<ListFile>| {
            let list = file.read().ok()?;
            let entry = list.keys.iter().find(|(listed, _)| listed == key);
            let options = entry.map(|(_, options)| *options);
            options.filter(|options| !options.is_over())
        };
        self.files.iter().find_map(find)
    }

    /// Lines of the lists that allow nobody though they were meant to, and why.
    pub fn mistakes(&self) -> Vec<String> {
        let lists = self.files.iter().filter_map(|file| file.read().ok());
        lists.flat_map(|list| list.mistakes.clone()).collect()
    }

    /// Why files allow nobody.
    fn unusable(&self) -> Vec<String> {
        let reasons = self.files.iter().filter_map(|file| file.read().err());
        reasons.collect()
    }

    /// What somebody should know of lists that were read again; `nobody` says what it means that nobody is
    /// allowed, and why.
    pub fn news(&self, nobody: impl Fn(&str) -> String) -> Vec<String> {
        let mut news = self.mistakes();
        match self.nobody() {
            Some(why) => news.push(nobody(&why)),
            None if self.named => news.extend(self.unusable()),
            None => {}
        }
        news
    }

    /// Whether they were named on the command line.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Why nobody may send, if that is so.
    pub fn nobody(&self) -> Option<String> {
        if self.anyone || !self.keys.is_empty() {
            return None;
        }
        let mut reasons = Vec::new();
        for file in &self.files {
            match file.read() {
                Ok(_) => return None,
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() {
            reasons.push("without HOME there is no list of keys".to_owned());
        }
        Some(reasons.join("; "))
    }

    /// Adds `key` to the user's own list; says to which file.
    pub fn remember(key: &PublicKey, from: IpAddr) -> Result<PathBuf, Failure> {
        let path = config_file(LIST)?;
        let refused = |why| Failure::new(Kind::Authentication, why);
        if path.exists() {
            check_safe(&path).map_err(refused)?;
        }
        let add = || {
            if let Some(parent) = path.parent() {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(parent)?;
            }
            let mut options = File::options();
            let options = options.read(true).append(true).create(true).mode(0o600);
            let mut file = options.open(&path)?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            let new_line = match text.last() {
                None | Some(b'\n') => "",
                Some(_) => "\n",
            };
            // One write, so that two processes do not mix their lines.
            file.write_all(format!("{new_line}{key} from {from}\n").as_bytes())
        };
        add().map_err(|error: io::Error| Failure::io(&path, error))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key() -> PublicKey {
        dfcp::generate_key().unwrap().public()
    }

    /// A directory, and the place of a list in it.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        (dir, path)
    }

    #[test]
    fn lists_have_comments_and_are_read_each_time() {
        let (_dir, path) = place();
        let (welcome, other) = (key(), key());
        fs::write(&path, format!("# friends\n\n{welcome} laptop\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let allowed = Allowed::new(&[Who::File(path.clone())]).unwrap();
        assert!(allowed.contains(&welcome) && !allowed.contains(&other));
        assert_eq!(allowed.nobody(), None);
        fs::remove_file(&path).unwrap();
        assert!(!allowed.contains(&welcome));
        assert!(allowed.nobody().unwrap().contains("is not there"));
    }

    #[test]
    fn a_list_that_is_not_safely_kept_allows_nobody() {
        let (_dir, path) = place();
        let key = key();
        fs::write(&path, format!("{key}\n")).unwrap();
        for (mode, safe) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let allowed = Allowed::new(&[Who::File(path.clone())]);
            assert_eq!(allowed.is_ok_and(|a| a.contains(&key)), safe, "{mode:o}");
        }
        for (content, why) in [("", "no key"), ("# nobody\n", "no key")] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, content).unwrap();
            let refused = Allowed::new(&[Who::File(path.clone())]).unwrap_err();
            assert!(refused.message.contains(why), "{refused}");
        }
    }

    #[test]
    fn options_stand_before_a_key_and_a_mistake_in_them_allows_nobody() {
        let (_dir, path) = place();
        let (rich, poor, wrong, plain) = (key(), key(), key(), key());
        let text = format!(
            "rate=20M,max-streams=7 {rich} anna\nquota=10G/1d {poor}\nrat=20M {wrong}\n\
             {plain} rate=1 is a comment\n# {wrong}\n"
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let allowed = Allowed::new(&[Who::File(path.clone())]).unwrap();
        let options = allowed.options(&rich);
        assert_eq!(options.rate, Some(Rate::from_bps(20_000_000)));
        assert_eq!((options.max_streams, options.quota), (Some(7), None));
        let quota = allowed.options(&poor).quota.unwrap();
        assert_eq!(
            (quota.bytes, quota.period.as_secs()),
            (10_000_000_000, 86_400)
        );
        assert!(allowed.contains(&plain) && !allowed.contains(&wrong));
        assert_eq!(allowed.options(&plain), KeyOptions::default());
        let mistakes = allowed.mistakes();
        assert!(
            mistakes.len() == 1 && mistakes[0].contains("line 3"),
            "{mistakes:?}"
        );
        for bad in [
            "",
            "rate",
            "rate=0",
            "rate=20",
            "quota=1",
            "quota=1/0s",
            "max-streams=x",
            "rate=1,,",
            "rate=1,rate=2",
            "max-streams=0",
            "until=2027-02-29",
            "until=2027-13-01",
            "until=2027-00-10",
            "until=2027-1-1",
            "until=+027-01-01",
            "until=1969-12-31",
        ] {
            assert!(bad.parse::<KeyOptions>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn quotas_are_bytes_in_a_time() {
        assert!(quota("10G/1d").is_ok() && quota("1/1s").is_ok());
        for bad in ["0/1d", "10G", "10G/0s", "/1d", "-1/1d", "1G/", "1G/1d/1d"] {
            assert!(quota(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-12-31", 364),
            ("1972-03-01", 790),
            ("2000-02-29", 11_016),
            ("2026-11-24", 20_781),
            ("2100-03-01", 47_541),
        ] {
            assert_eq!(day(text), Ok(days), "{text}");
        }
    }

    #[test]
    fn a_key_is_allowed_until_its_day_and_each_key_has_one_line() {
        let (_dir, path) = place();
        let (over, still, twice) = (key(), key(), key());
        let text = format!(
            "until=2020-02-29 {over}\nuntil=9999-12-31,rate=1M {still}\nrate=1M {twice}\n{twice}\n\
             dfcp-pub-misspelt\n"
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let allowed = Allowed::new(&[Who::File(path)]).unwrap();
        assert!(!allowed.contains(&over) && allowed.contains(&still));
        // What limits it is not undone by another line.
        assert!(allowed.options(&twice).rate.is_some());
        let mistakes = allowed.mistakes().join("\n");
        assert!(
            mistakes.contains("line 4: the key is on a line above"),
            "{mistakes}"
        );
        assert!(mistakes.contains("line 5: "), "{mistakes}");
    }

    #[test]
    fn a_misspelt_key_is_no_file() {
        let key = key();
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(Who::Key(key)));
        assert!(text[..text.len() - 1].parse::<Who>().is_err());
        assert_eq!("a/b".parse(), Ok(Who::File("a/b".into())));
    }
}
