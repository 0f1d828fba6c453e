//! The settings: one table, by which they are read and checked. `docs/user/settings.md` describes
//! them, and `tests/tidy` compares it with the table.
//!
//! All are environment variables. `MPI_Init` reads them, and all processes of the job agree on
//! them: if a setting differs between processes, the value of rank 0 of `MPI_COMM_WORLD` is used,
//! with a warning [PR-5].

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Environment variable.
    pub name: &'static str,
    /// Valid values.
    pub values: Values,
    /// Value when it is not set.
    pub default: &'static str,
}

/// The values of a setting.
#[derive(Debug)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number in this range, both ends included.
    Number(i64, i64),
    /// Any text, described by these words. Each process uses its own value; there is no agreement.
    Text(&'static str),
}

/// All settings, in the order of `Id`.
pub static SETTINGS: [Setting; COUNT] = [
    setting("MPIX_RMA", Values::Words(&["all", "marked", "off"]), "all"),
    setting("MPIX_RMA_CMA", Values::Words(&["on", "off"]), "on"),
    setting("MPIX_RMA_COLLECTIVES", Values::Words(&["auto", "always", "host"]), "auto"),
    setting("MPIX_RMA_COLLECTIVES_TABLE", Values::Text("file"), "built in"),
    setting("MPIX_RMA_IB_CACHE", Values::Text("MiB"), "1/16 of memory"),
    setting("MPIX_RMA_IB_DEVICE", Values::Text("name, name:port or name:port:gid"), "best active"),
    setting("MPIX_RMA_IB_MAX_QP", Values::Number(1, 1 << 23), "512"),
    setting("MPIX_RMA_IB_PKEY", Values::Text("hexadecimal"), "first full"),
    setting("MPIX_RMA_LOG", Values::Words(&["off", "error", "warn", "info", "debug"]), "warn"),
    setting("MPIX_RMA_MAX_REQUESTS", Values::Number(1, 250_000), "200000"),
    setting("MPIX_RMA_PROGRESS", Values::Words(&["calls", "thread"]), "calls"),
    setting("MPIX_RMA_TRANSPORT", Values::Words(&["auto", "shm", "host_mpi", "verbs"]), "auto"),
];

const fn setting(name: &'static str, values: Values, default: &'static str) -> Setting {
    Setting { name, values, default }
}

/// Number of settings.
pub(crate) const COUNT: usize = 12;

/// Indices into [`SETTINGS`].
#[allow(dead_code, reason = "the transport reads settings that are text from the environment")]
enum Id {
    Windows,
    Cma,
    Collectives,
    Table,
    Cache,
    Device,
    MaxQueues,
    Partition,
    Log,
    MaxRequests,
    Progress,
    Transport,
}

/// Which windows are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// Every window that a transport can serve.
    All,
    /// Windows with the info key `mpix_rma=true`.
    Marked,
    /// None: every call goes straight to the host.
    Off,
}

/// Which collectives run on schedules of this library, on a host that cannot call us while it
/// blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collectives {
    /// Those of communicators that make many.
    Auto,
    /// All that can, from the first one on.
    Always,
    /// None.
    Host,
}

/// How peers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By shared memory on one node, else by RDMA or by messages through the host.
    Auto,
    /// By shared memory; windows of several nodes are left to the host.
    Shm,
    /// All by messages through the host.
    HostMpi,
    /// All by RDMA.
    Verbs,
}

impl Reach {
    /// True if messages through the host are needed even where all processes are on one node.
    #[must_use]
    pub fn is_far(self) -> bool {
        matches!(self, Reach::HostMpi | Reach::Verbs)
    }

    /// From its index among the setting's words, which is also its number in agreements.
    #[must_use]
    pub fn of(place: i64) -> Self {
        match place {
            1 => Reach::Shm,
            2 => Reach::HostMpi,
            3 => Reach::Verbs,
            _ => Reach::Auto,
        }
    }
}

/// The value of every setting: a word's index in its list, or the number itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings(pub [i64; COUNT]);

impl Settings {
    /// The defaults.
    #[must_use]
    pub fn defaults() -> Self {
        Self(std::array::from_fn(|at| default(&SETTINGS[at])))
    }

    /// Reads all settings through `look_up`. Also returns a complaint for each invalid value, which
    /// the default replaces.
    pub fn read(mut look_up: impl FnMut(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        let values = std::array::from_fn(|at| {
            let setting = &SETTINGS[at];
            let Some(text) = look_up(setting.name) else { return default(setting) };
            parse(setting, &text).unwrap_or_else(|| {
                complaints.push(complaint(setting, &text));
                default(setting)
            })
        });
        (Self(values), complaints)
    }

    /// Which windows are served.
    #[must_use]
    pub fn serve(&self) -> Serve {
        match self.0[Id::Windows as usize] {
            0 => Serve::All,
            1 => Serve::Marked,
            _ => Serve::Off,
        }
    }

    /// Whether cross-memory attach may be used.
    #[must_use]
    pub fn cma(&self) -> bool {
        self.0[Id::Cma as usize] == 0
    }

    /// Which collectives run on schedules of this library [CL-1].
    #[must_use]
    pub fn collectives(&self) -> Collectives {
        match self.0[Id::Collectives as usize] {
            0 => Collectives::Auto,
            1 => Collectives::Always,
            _ => Collectives::Host,
        }
    }

    /// The least severe level that is logged.
    #[must_use]
    pub fn log(&self) -> log::LevelFilter {
        // The setting's words are the levels in their order.
        log::LevelFilter::iter()
            .nth(self.0[Id::Log as usize] as usize)
            .unwrap_or(log::LevelFilter::Debug)
    }

    /// Whether a thread of the library makes progress, too [PR-2].
    #[must_use]
    pub fn progress_thread(&self) -> bool {
        self.0[Id::Progress as usize] == 1
    }

    /// How peers are reached.
    #[must_use]
    pub fn reach(&self) -> Reach {
        Reach::of(self.0[Id::Transport as usize])
    }

    /// Most queue pairs of a process.
    #[must_use]
    pub fn max_queues(&self) -> u32 {
        u32::try_from(self.0[Id::MaxQueues as usize]).unwrap_or(u32::MAX)
    }

    /// Most requests of this library that may be pending [RQ-3].
    #[must_use]
    pub fn max_requests(&self) -> i64 {
        self.0[Id::MaxRequests as usize]
    }
}

fn default(setting: &Setting) -> i64 {
    parse(setting, setting.default).unwrap_or(0)
}

fn parse(setting: &Setting, text: &str) -> Option<i64> {
    let text = text.trim();
    match &setting.values {
        Values::Words(words) => words
            .iter()
            .position(|word| word.eq_ignore_ascii_case(text))
            .and_then(|at| i64::try_from(at).ok()),
        Values::Number(least, most) => {
            text.parse().ok().filter(|number| (*least..=*most).contains(number))
        }
        Values::Text(_) => Some(0),
    }
}

fn complaint(setting: &Setting, text: &str) -> String {
    let values = match &setting.values {
        Values::Words(words) => words.join(", "),
        Values::Number(least, most) => format!("a number from {least} to {most}"),
        Values::Text(what) => (*what).to_owned(),
    };
    format!("{}={text} is not known (values: {values}); using {}", setting.name, setting.default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_setting() {
        for setting in &SETTINGS {
            assert!(parse(setting, setting.default).is_some(), "{}", setting.name);
        }
    }

    #[test]
    fn an_unknown_value_is_named_and_the_default_used() {
        let (settings, complaints) =
            Settings::read(|name| (name == "MPIX_RMA").then(|| "sometimes".into()));
        assert_eq!(settings, Settings::defaults());
        assert_eq!(
            complaints,
            ["MPIX_RMA=sometimes is not known (values: all, marked, off); using all"]
        );
    }

    #[test]
    fn words_and_numbers_are_read() {
        let (settings, complaints) = Settings::read(|name| match name {
            "MPIX_RMA" => Some("Marked".into()),
            "MPIX_RMA_CMA" => Some("off".into()),
            "MPIX_RMA_MAX_REQUESTS" => Some("1000".into()),
            _ => None,
        });
        assert!(complaints.is_empty());
        assert_eq!(settings.serve(), Serve::Marked);
        assert!(!settings.cma());
        assert_eq!(settings.max_requests(), 1000);
        assert_eq!(settings.log(), log::LevelFilter::Warn);
    }

    #[test]
    fn a_number_out_of_range_is_refused() {
        let (_, complaints) =
            Settings::read(|name| (name == "MPIX_RMA_MAX_REQUESTS").then(|| "300000".into()));
        assert_eq!(complaints.len(), 1);
    }
}
