//! The papers whose figures are known, with the texts that describe them: a folder of catalogue
//! parts beside this file and a folder of `scenarios/figures` for each.

/// Papers whose figures are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Paper {
    /// Both papers on DFCP
    Dfcp,
    /// The paper on network-coded TCP
    Ctcp,
    /// The paper on RC-UDP
    Rcudp,
    /// The paper on Chameleon
    Chameleon,
    /// No paper: every part with every other
    Ablation,
    /// No paper: all transports on the same paths
    Together,
    /// No paper: experiments on why figures differ
    Reasons,
}

/// Texts with their names.
pub type Texts = &'static [(&'static str, &'static str)];

/// What is reproduced of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Book {
    /// Its name, also of its folders.
    pub name: &'static str,
    /// Title of the page.
    pub title: &'static str,
    /// Parts of the catalogue.
    pub catalogue: Texts,
    /// Scenario files.
    pub scenarios: Texts,
}

/// Texts that belong to the program.
macro_rules! texts {
    ($directory:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!($directory, $name, ".toml")))),*]
    };
}

impl Paper {
    /// What is reproduced of it.
    pub fn book(self) -> Book {
        match self {
            Self::Dfcp => DFCP,
            Self::Ctcp => CTCP,
            Self::Rcudp => RC_UDP,
            Self::Chameleon => CHAMELEON,
            Self::Ablation => ABLATION,
            Self::Together => TOGETHER,
            Self::Reasons => REASONS,
        }
    }
}

/// DFCP-J is "Living with congestion: Digital Fountain based Communication Protocol" (2016),
/// DFCP-TR "Design and Performance Evaluation of the Digital Fountain based Communication
/// Protocol" (2012).
const DFCP: Book = Book {
    name: "dfcp",
    title: "The figures and tables of DFCP, made again",
    catalogue: texts!(
        "dfcp/":
        "scenarios", "journal-validation", "journal-goodput", "journal-buffers-times",
        "journal-fairness", "report-one-flow", "report-two-flows", "reasons",
    ),
    scenarios: texts!(
        "../../../../../scenarios/figures/dfcp/":
        "buffer", "convergence", "fixed-redundancy", "ideal", "loss", "lot-loss", "lot-rtt",
        "many-flows", "object-loss", "object-rtt", "object-rtt-loss", "occupancy",
        "optimal-redundancy", "redundancy", "rtt", "rtt-loss", "scalability", "transients",
        "two-equal-losses", "two-losses", "two-objects-equal-losses", "two-objects-losses",
        "two-objects-rtts", "two-rtts", "waste", "waste-means", "window",
    ),
};

/// "Network Coded TCP (CTCP)" (2012).
const CTCP: Book = Book {
    name: "ctcp",
    title: "The figures and tables of CTCP, made again",
    catalogue: texts!(
        "ctcp/": "scenarios", "one-flow", "two-flows", "applications", "networks", "reasons",
    ),
    scenarios: texts!(
        "../../../../../scenarios/figures/ctcp/":
        "cellular", "loss", "rates-rtts", "two", "video", "web", "wifi", "with-tcp",
        "with-tcp-loss",
    ),
};

/// "On Raptor Coding Over UDP For Reliable High-Bandwidth Data Transport" (2018).
const RC_UDP: Book = Book {
    name: "rcudp",
    title: "The figures and tables of RC-UDP, made again",
    catalogue: texts!("rcudp/": "scenarios", "simulation", "testbed", "reasons"),
    scenarios: texts!(
        "../../../../../scenarios/figures/rcudp/":
        "bandwidth-1", "bandwidth-10", "delay-1", "delay-10", "drops-1", "drops-10", "esnet",
        "overhead", "random-graphs", "random-graphs-30",
    ),
};

/// "Design and Validation of a Reliable Rate Based Transport Protocol: The Chameleon Protocol"
/// (2009).
const CHAMELEON: Book = Book {
    name: "chameleon",
    title: "The figures and tables of Chameleon, made again",
    catalogue: texts!(
        "chameleon/": "scenarios", "friendliness", "flow-control", "flower", "reasons",
    ),
    scenarios: texts!(
        "../../../../../scenarios/figures/chameleon/":
        "beside-tcp", "changing-reader", "flower", "slow-reader", "stability",
    ),
};

/// What none of the papers could run.
const ABLATION: Book = Book {
    name: "ablation",
    title: "Code × rate × scheduler",
    catalogue: texts!("ablation/": "scenarios", "parts"),
    scenarios: texts!("../../../../../scenarios/figures/ablation/": "parts"),
};

/// What none of the papers measured.
const TOGETHER: Book = Book {
    name: "together",
    title: "If they had met",
    catalogue: texts!("together/": "scenarios", "paths"),
    scenarios: texts!("../../../../../scenarios/figures/together/": "alone", "beside"),
};

/// What decides where a figure of a paper does not come out.
const REASONS: Book = Book {
    name: "reasons",
    title: "Why figures differ: an experiment each",
    catalogue: texts!("reasons/": "scenarios", "dfcp", "ctcp", "rcudp", "chameleon"),
    scenarios: texts!(
        "../../../../../scenarios/figures/reasons/":
        "air-jitter", "avail-win", "beside-buffer", "block-time", "bound", "bursts",
        "changing-window", "cubic-clock", "cubic-queue", "esnet-drops", "esnet-queue", "few-drops",
        "fifo", "first-packet", "first-to-last", "flower-sizes", "graph-delay", "host-time", "hosts",
        "many", "no-block-fails", "one-block", "queue-length", "scatter", "seal", "short-queue", "tick",
        "timeouts", "video-delay", "waste-buffer", "windows", "windows-lot", "windows-two",
    ),
};
