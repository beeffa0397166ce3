//! Whole sessions: two ends over a connection of their own, one of them hostile where that is the subject.

mod boasts;
mod changed;
mod common;
mod conflicts;
mod dry_run;
mod floods;
mod holes;
mod hostile;
mod integrity;
mod kept;
mod liars;
mod older;
mod pipes;
mod scan;
mod session;
mod silent;
