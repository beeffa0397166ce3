//! A receiver's door: who comes in, who is asked about, who is turned away and how he learns why.

use std::sync::{Arc, PoisonError, RwLock};

use dfcp::{Admission, Connection, PublicKey, RecvStream};
use dfcp_command::text::printable;
use dfcp_command::{Failure, Kind};
use dfcp_transfer::{Offered, Rejection, RejectionKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::allowed::Allowed;
use crate::ask::{Answer, Asker, Stranger};
use crate::command::Output;
use crate::command::peer::OVER;
use crate::probe::far::Instrument;
use crate::refusals::Refusals;
use crate::tally::Refused;

/// Strangers that may be connected at a time, asked about or not.
const MAX_STRANGERS: usize = 8;

/// How a receiver may be told to take files from `key`.
pub fn invitation(key: &PublicKey) -> String {
    format!("dfcp recv --allow {key}")
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Door {
    allowed: Arc<RwLock<Arc<Allowed>>>,
    asker: Option<Asker>,
    instrument: Instrument,
    strangers: Arc<Semaphore>,
    refusals: Arc<Refusals>,
    output: Output,
}

/// Somebody who was let in. A stranger takes one of the places that there are for them.
#[derive(Debug)]
pub struct Guest {
    place: Option<OwnedSemaphorePermit>,
}

impl Door {
    /// Opens to those who are allowed; at a terminal others are asked about, unless the command
    /// line says who is allowed.
    ///
    /// # Errors
    /// When nobody could ever come in.
    pub fn new(allowed: Allowed, output: &Output) -> Result<Self, Failure> {
        let asker = match allowed.is_named() {
            true => None,
            false => Asker::start(),
        };
        match (allowed.nobody(), &asker) {
            (Some(why), None) => {
                let message = format!(
                    "nobody may send here: {why}. Allow a sender by the key that `dfcp key show` \
                     prints on its machine: dfcp recv --allow KEY, or a line in authorized_keys; \
                     at a terminal dfcp asks; --allow-any takes files from anyone"
                );
                return Err(Failure::new(Kind::Authentication, message));
            }
            (Some(why), Some(_)) => output.say(format_args!("{why}; you will be asked")),
            (None, _) => {}
        }
        for mistake in allowed.mistakes() {
            output.say(mistake);
        }
        Ok(Self::of(allowed, asker, output))
    }

    /// Opens to those who are allowed, and asks about nobody: for a service. It may be nobody.
    pub fn without_questions(allowed: Allowed, output: &Output) -> Self {
        Self::of(allowed, None, output)
    }

    fn of(allowed: Allowed, asker: Option<Asker>, output: &Output) -> Self {
        Self {
            allowed: Arc::new(RwLock::new(Arc::new(allowed))),
            asker,
            instrument: Instrument::default(),
            strangers: Arc::new(Semaphore::new(MAX_STRANGERS)),
            refusals: Arc::default(),
            output: output.clone(),
        }
    }

    /// Who is allowed now.
    pub fn allowed(&self) -> Arc<Allowed> {
        let allowed = self.allowed.read();
        allowed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens to these from now on. Who is in already stays.
    pub fn open_to(&self, allowed: Allowed) {
        let current = self.allowed.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(allowed);
    }

    /// Whether `key` may connect.
    pub fn admission(&self, key: &PublicKey) -> Admission {
        let admission = match self.asker {
            Some(_) => Admission::Welcome,
            None => self.allowed().admission(key),
        };
        if admission != Admission::Welcome {
            self.refused(key);
        }
        admission
    }

    /// Who has come in; `None` if there are too many strangers already.
    pub fn guest(&self, key: &PublicKey) -> Option<Guest> {
        match self.allowed().contains(key) {
            true => Some(Guest { place: None }),
            false => {
                let place = Some(self.strangers.clone().try_acquire_owned().ok()?);
                Some(Guest { place })
            }
        }
    }

    /// Counts that `key` was refused, and says so.
    fn refused(&self, key: &PublicKey) {
        self.output.tally().refuse(Refused::Key);
        self.tell(key);
    }

    /// Says that `key` was refused and what would allow it, once.
    fn tell(&self, key: &PublicKey) {
        let why = || {
            let why = self.allowed().why_not(key);
            format!("{why}; to take files from it: {}", invitation(key))
        };
        if let Some(line) = self.refusals.news(key, why) {
            self.output.say(line);
        }
    }

    /// Whether the files of `guest` are welcome.
    pub async fn consent(
        &self,
        guest: &Guest,
        connection: &Connection,
        offered: Offered,
    ) -> Result<(), Rejection> {
        let key = connection.peer();
        if guest.place.is_none() {
            return Ok(());
        }
        // Without either, the key was on the list when it connected, and is not any more.
        let (Some(asker), Some(remote)) = (&self.asker, connection.remote_address()) else {
            return Err(self.unknown(&key));
        };
        let stranger = Stranger {
            key,
            remote,
            offered,
        };
        match asker.ask(stranger).await {
            Some(Answer::Yes) => Ok(()),
            Some(Answer::Always) => {
                // Not to be able to remember it is no reason to refuse these files.
                match Allowed::remember(&key, remote.ip()) {
                    Ok(path) => self
                        .output
                        .say(format_args!("added it to {}", path.display())),
                    Err(failure) => dfcp_command::tell!(
                        "dfcp: taken this once only: {}",
                        printable(&failure.message)
                    ),
                }
                Ok(())
            }
            Some(Answer::No) => Err(self.unknown(&key)),
            None => {
                self.output.tally().refuse(Refused::Key);
                let why = "it is busy with the keys of others; try again later";
                Err(Rejection::new(RejectionKind::Key, why))
            }
        }
    }

    /// Measures the path of `guest`, who asks for it by `stream`.
    ///
    /// # Errors
    /// Why it is not done, for the guest.
    pub async fn measures(
        &self,
        guest: &Guest,
        connection: &Connection,
        stream: RecvStream,
    ) -> Result<(), Failure> {
        // What it sends back is not sent to strangers.
        match guest.place {
            None => self.instrument.answer(connection, stream).await,
            Some(_) => {
                let why = self.unknown(&connection.peer()).message;
                Err(Failure::new(Kind::Authentication, why))
            }
        }
    }

    fn unknown(&self, key: &PublicKey) -> Rejection {
        self.refused(key);
        let why = match self.allowed().admission(key) {
            Admission::Expired => format!("it {OVER}"),
            _ => format!("it does not know this key; there: {}", invitation(key)),
        };
        Rejection::new(RejectionKind::Key, why)
    }
}
