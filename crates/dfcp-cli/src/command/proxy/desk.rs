//! What a server of proxies lets its clients do, which may change while it serves.

use std::sync::{Arc, PoisonError, RwLock};

use dfcp::{CloseCode, PublicKey, Rate};
use dfcp_command::{Failure, Kind, units};
use dfcp_proxy::{Limits, Quota, Report, Rule, Rules, Server, ServerConfig, Settings};

use crate::allowed::{Allowed, Who, quota};

/// What a server lets its clients do.
#[derive(Clone, Debug, clap::Args)]
pub struct Grants {
    /// Public key that is served, or a file with a key at the beginning of each line; without any,
    /// those in authorized_keys beside the default key
    #[arg(long, value_name = "KEY|FILE")]
    allow: Vec<Who>,
    /// What may be connected to, such as internet:80,443, 10.0.0.0/8:22 or all [default: internet,
    /// which has no private, loopback, link-local or multicast addresses]
    #[arg(long, value_name = "NET[:PORTS]")]
    permit: Vec<Rule>,
    /// What of that may not
    #[arg(long, value_name = "NET[:PORTS]")]
    refuse: Vec<Rule>,
    /// Where clients may have this machine listen (-R), such as 127.0.0.1:8000-8999; nowhere unless given
    #[arg(long, value_name = "NET[:PORTS]")]
    permit_listen: Vec<Rule>,
    /// Connections that each key may have at once
    #[arg(long, value_name = "N", default_value_t = dfcp_proxy::MAX_STREAMS, value_parser = clap::value_parser!(u64).range(1..))]
    max_streams: u64,
    /// Of these, associations of UDP: each takes a socket here
    #[arg(long, value_name = "N", default_value_t = dfcp_proxy::MAX_ASSOCIATIONS)]
    max_associations: u64,
    /// Rate of what each key carries each way, bits a second, such as 20M: beyond it connections wait, and
    /// datagrams are dropped
    #[arg(long, value_name = "RATE", value_parser = units::limit)]
    rate: Option<Rate>,
    /// Bytes that each key may carry in a period, both ways together, such as 10G/1d: beyond them its
    /// connections are broken and refused
    #[arg(long, value_name = "BYTES/PERIOD", value_parser = quota)]
    quota: Option<Quota>,
}

impl Grants {
    fn settings(&self) -> Settings {
        let listen = !self.permit_listen.is_empty();
        Settings {
            rules: Rules::new(self.permit.clone(), self.refuse.clone()),
            listen: listen.then(|| Rules::new(self.permit_listen.clone(), Vec::new())),
        }
    }
}

/// What may change while a server serves.
pub struct Terms {
    pub allowed: Allowed,
    limits: Limits,
    settings: Settings,
}

impl Terms {
    /// Those of `grants`, instead of others whose lists were `before`.
    fn new(grants: &Grants, before: &Allowed) -> Result<Self, Failure> {
        Ok(Self {
            allowed: Allowed::after(&grants.allow, before)?,
            limits: Limits {
                streams: grants.max_streams,
                associations: grants.max_associations,
                rate: grants.rate,
                quota: grants.quota,
            },
            settings: grants.settings(),
        })
    }

    /// Why nobody is served, if that is so.
    pub fn nobody(&self) -> Option<Failure> {
        let why = self.allowed.nobody()?;
        Some(Failure::new(Kind::Authentication, nobody(&why)))
    }

    /// What `key` may have: what the list of keys says of it, or else what counts for all.
    fn limits(&self, key: &PublicKey) -> Limits {
        let own = self.allowed.options(key);
        Limits {
            streams: own.max_streams.unwrap_or(self.limits.streams),
            associations: own.max_associations.unwrap_or(self.limits.associations),
            rate: own.rate.or(self.limits.rate),
            quota: own.quota.or(self.limits.quota),
        }
    }
}

/// That nobody is served, and what to do.
fn nobody(why: &str) -> String {
    format!(
        "nobody would be served: {why}. Allow a client by the key that `dfcp key show` prints on \
         its machine: dfcp proxy serve --allow KEY, or a line in authorized_keys"
    )
}

/// Terms that are read where clients come, and changed where a file is read anew.
#[derive(Clone)]
pub struct Current(Arc<RwLock<Arc<Terms>>>);

impl Current {
    /// Those of now.
    pub fn get(&self) -> Arc<Terms> {
        let terms = self.0.read();
        terms.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, terms: Terms) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }
}

/// A server and its terms.
pub struct Desk {
    pub terms: Current,
    pub server: Server,
}

impl Desk {
    /// A server without clients. It may be that nobody can come.
    ///
    /// # Errors
    /// When a list of keys cannot be used.
    pub fn open(grants: &Grants, report: Report) -> Result<Self, Failure> {
        let terms = Terms::new(grants, &Allowed::default())?;
        let settings = terms.settings.clone();
        let terms = Current(Arc::new(RwLock::new(Arc::new(terms))));
        let limits = terms.clone();
        let server = Server::new(ServerConfig {
            settings,
            limits: Arc::new(move |key| limits.get().limits(key)),
            report,
        });
        Ok(Self { terms, server })
    }

    /// The terms of other `grants`, which count once they are [applied](Self::apply).
    ///
    /// # Errors
    /// When a list of keys cannot be used that could not be before either.
    pub fn read(&self, grants: &Grants) -> Result<Terms, Failure> {
        Terms::new(grants, &self.terms.get().allowed)
    }

    /// Serves by these terms from now on. Clients whose keys are not allowed any more are parted from,
    /// also where that is everybody. What somebody should know of it.
    pub fn apply(&self, terms: Terms) -> Vec<String> {
        self.terms.set(terms);
        let terms = self.terms.get();
        self.server.apply(terms.settings.clone());
        for (_, connection) in self.server.traffic().connections() {
            if !terms.allowed.contains(&connection.peer()) {
                connection.close(CloseCode::NO_ERROR, "the key is not allowed any more");
            }
        }
        terms.allowed.news(nobody)
    }
}
