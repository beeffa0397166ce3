//! `--profile`: the transports that [`Profile`] lists, for `clap`.

pub use dfcp::ProfileName as Profile;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads the name of a transport; help and completions have them all.
pub fn parser() -> impl TypedValueParser<Value = Profile> {
    parser_of(|_| true)
}

/// Like [`parser`], but help and completions have only those that `fit`. The others are read all the same,
/// for the command to say why they do not.
pub fn parser_of(fit: fn(Profile) -> bool) -> impl TypedValueParser<Value = Profile> {
    let value = |p: Profile| {
        let value = PossibleValue::new(p.name()).help(p.summary());
        value.hide(!fit(p))
    };
    PossibleValuesParser::new(Profile::ALL.map(value))
        .map(|name| Profile::from_name(&name).unwrap_or_default())
}
