//! The settings: one table, from which they are read, checked and documented.
//!
//! All are environment variables. They are read at `MPI_Init` and agreed over all processes of the
//! job: a setting that differs between processes is taken from rank 0 of `MPI_COMM_WORLD`, with a
//! warning [PR-5].

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Environment variable.
    pub name: &'static str,
    /// Values that it takes.
    pub values: Values,
    /// Value when it is not set.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// The values of a setting.
#[derive(Debug)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number in this range, both ends included.
    Number(i64, i64),
    /// Anything, described by these words; each process has its own, which is not agreed.
    Text(&'static str),
}

/// All settings, in the order of [`Id`].
pub static SETTINGS: [Setting; COUNT] = [
    Setting {
        name: "MPIX_RMA",
        values: Values::Words(&["all", "marked", "off"]),
        default: "all",
        doc: "which windows are served: all, only those created with the info key mpix_rma=true, \
              or none",
    },
    Setting {
        name: "MPIX_RMA_CMA",
        values: Values::Words(&["on", "off"]),
        default: "on",
        doc: "whether memory given to MPI_Win_create may be reached by cross-memory attach; off: \
              by active copying",
    },
    Setting {
        name: "MPIX_RMA_IB_CACHE",
        values: Values::Text("MiB"),
        default: "1/16 of memory",
        doc: "MiB of the program's buffers that stay registered with the RDMA device after use, \
              for the next one, while the kernel tells of memory that is unmapped; 0: none",
    },
    Setting {
        name: "MPIX_RMA_IB_DEVICE",
        values: Values::Text("name, name:port or name:port:gid"),
        default: "best active",
        doc: "the RDMA device, its port, and the index of the port's address that verbs uses; \
              ibv_devinfo -v names them. Each node may have its own. Else InfiniBand before \
              Ethernet, addresses that are routed before others, and the first of those",
    },
    Setting {
        name: "MPIX_RMA_IB_MAX_QP",
        values: Values::Number(1, 1 << 23),
        default: "512",
        doc: "queue pairs of RDMA that a process has at a time, each 64 KB or so; peers beyond it \
              take turns, which costs four messages a turn",
    },
    Setting {
        name: "MPIX_RMA_IB_PKEY",
        values: Values::Text("hexadecimal"),
        default: "first full",
        doc: "partition key of InfiniBand, as 0x8001; else the first of which the port is a full \
              member",
    },
    Setting {
        name: "MPIX_RMA_LOG",
        values: Values::Words(&["off", "error", "warn", "info", "debug"]),
        default: "warn",
        doc: "what is written to standard error; info tells which transport and hook each window \
              uses",
    },
    Setting {
        name: "MPIX_RMA_MAX_REQUESTS",
        values: Values::Number(1, 250_000),
        default: "200000",
        doc: "requests of this library that may be alive in one process; beyond it MPI_ERR_NO_MEM \
              (MPICH aborts at about 262,144 of all kinds)",
    },
    Setting {
        name: "MPIX_RMA_PROGRESS",
        values: Values::Words(&["calls", "thread"]),
        default: "calls",
        doc: "what drives epochs: calls of the application into MPI, or also a thread of the \
              library, for processes that compute without calling MPI (it makes the host run at \
              MPI_THREAD_MULTIPLE)",
    },
    Setting {
        name: "MPIX_RMA_TRANSPORT",
        values: Values::Words(&["auto", "shm", "host_mpi", "verbs"]),
        default: "auto",
        doc: "how peers are reached: by shared memory on one node, and else by RDMA where both \
              have a device for it and by messages through the host where not; by shared memory, \
              windows of several nodes being left to the host; all by messages; or all by RDMA",
    },
];

/// Settings that there are.
pub(crate) const COUNT: usize = 10;

/// Names a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Id {
    /// `MPIX_RMA`
    Windows,
    /// `MPIX_RMA_CMA`
    Cma,
    /// `MPIX_RMA_IB_CACHE`
    Cache,
    /// `MPIX_RMA_IB_DEVICE`
    Device,
    /// `MPIX_RMA_IB_MAX_QP`
    MaxQueues,
    /// `MPIX_RMA_IB_PKEY`
    Partition,
    /// `MPIX_RMA_LOG`
    Log,
    /// `MPIX_RMA_MAX_REQUESTS`
    MaxRequests,
    /// `MPIX_RMA_PROGRESS`
    Progress,
    /// `MPIX_RMA_TRANSPORT`
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

    /// From its place among the setting's words, which is also its number in agreements.
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

/// The value of every setting: a word's place in its list, or the number itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings(pub [i64; COUNT]);

impl Settings {
    /// The defaults.
    #[must_use]
    pub fn defaults() -> Self {
        Self(std::array::from_fn(|at| default(&SETTINGS[at])))
    }

    /// Reads all settings through `look_up`, and the complaints about values that are not known;
    /// for such a setting the default is used.
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

    /// Cross-memory attach may be used.
    #[must_use]
    pub fn cma(&self) -> bool {
        self.0[Id::Cma as usize] == 0
    }

    /// What is logged.
    #[must_use]
    pub fn log(&self) -> log::LevelFilter {
        match self.0[Id::Log as usize] {
            0 => log::LevelFilter::Off,
            1 => log::LevelFilter::Error,
            2 => log::LevelFilter::Warn,
            3 => log::LevelFilter::Info,
            _ => log::LevelFilter::Debug,
        }
    }

    /// A thread of the library makes progress, too [PR-2].
    #[must_use]
    pub fn progress_thread(&self) -> bool {
        self.0[Id::Progress as usize] == 1
    }

    /// How peers are reached.
    #[must_use]
    pub fn reach(&self) -> Reach {
        Reach::of(self.0[Id::Transport as usize])
    }

    /// Queue pairs that a process may have.
    #[must_use]
    pub fn max_queues(&self) -> u32 {
        u32::try_from(self.0[Id::MaxQueues as usize]).unwrap_or(u32::MAX)
    }

    /// Requests that may be alive [RQ-3].
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
