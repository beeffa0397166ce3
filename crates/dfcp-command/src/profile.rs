//! `--profile`: the transports that [`Profile`] lists, for `clap`.

pub use dfcp::ProfileName as Profile;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads the name of a transport; help and completions have them all.
pub fn parser() -> impl TypedValueParser<Value = Profile> {
    let value = |p: Profile| PossibleValue::new(p.name()).help(p.summary());
    PossibleValuesParser::new(Profile::ALL.map(value))
        .map(|name| Profile::from_name(&name).unwrap_or_default())
}
