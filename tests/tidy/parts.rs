//! Which part of `src` may use which.

use super::{report, sources};

/// The parts of the library, lowest first, and what each uses. A part may use only what stands
/// above it, so there is no circle; `transport` and `mpi` stand for what their `mod.rs` exports.
const PARTS: &[(&str, &[&str])] = &[
    ("sync", &[]),
    ("collective", &["sync"]),
    ("engine", &[]),
    ("transport/streaming", &[]),
    ("transport/trials", &[]),
    ("transport/copy", &["transport/streaming", "transport/trials"]),
    ("transport/crossing", &["transport/copy", "transport/trials"]),
    ("transport/agreement", &[]),
    ("transport", &[]),
    ("transport/datatype", &["engine", "transport/copy"]),
    ("transport/guarded", &[]),
    ("transport/members", &["engine"]),
    ("transport/peers", &["engine"]),
    ("transport/sim", &["engine", "transport/datatype"]),
    (
        "transport/shm",
        &[
            "engine",
            "sync",
            "transport",
            "transport/copy",
            "transport/datatype",
            "transport/trials",
        ],
    ),
    (
        "transport/am",
        &[
            "engine",
            "transport",
            "transport/copy",
            "transport/datatype",
            "transport/guarded",
            "transport/members",
            "transport/peers",
        ],
    ),
    (
        "transport/rdma",
        &[
            "engine",
            "sync",
            "transport",
            "transport/copy",
            "transport/datatype",
            "transport/guarded",
            "transport/members",
            "transport/peers",
        ],
    ),
    (
        "transport/router",
        &[
            "engine",
            "transport",
            "transport/am",
            "transport/datatype",
            "transport/members",
            "transport/peers",
            "transport/rdma",
            "transport/shm",
        ],
    ),
    (
        "runtime",
        &[
            "engine",
            "sync",
            "transport",
            "transport/am",
            "transport/copy",
            "transport/datatype",
            "transport/members",
            "transport/rdma",
            "transport/router",
            "transport/shm",
        ],
    ),
    ("sim", &["collective", "engine", "transport/datatype", "transport/sim"]),
    ("mpi", &[]),
    ("mpi/abi", &["engine"]),
    ("mpi/info", &["engine", "mpi/abi", "runtime"]),
    ("mpi/progress", &["mpi/abi", "runtime"]),
    ("mpi/request", &["engine", "mpi", "mpi/abi", "mpi/progress", "runtime"]),
    ("mpi/datatype", &["engine", "mpi/abi", "mpi/request", "transport/datatype", "transport/am"]),
    (
        "mpi/collective",
        &[
            "collective",
            "engine",
            "mpi/abi",
            "mpi/datatype",
            "mpi/progress",
            "mpi/request",
            "runtime",
            "sync",
            "transport/copy",
            "transport/crossing",
            "transport/datatype",
            "transport/shm",
            "transport/trials",
        ],
    ),
    (
        "mpi/rma",
        &[
            "engine",
            "mpi/abi",
            "mpi/datatype",
            "mpi/request",
            "runtime",
            "transport/copy",
            "transport/datatype",
            "transport/shm",
        ],
    ),
    (
        "mpi/bootstrap",
        &[
            "engine",
            "mpi/abi",
            "mpi/datatype",
            "mpi/info",
            "mpi/progress",
            "mpi/request",
            "runtime",
            "transport/am",
            "transport/guarded",
            "transport/members",
            "transport/rdma",
            "transport/router",
            "transport/shm",
        ],
    ),
    (
        "mpi/window",
        &[
            "engine",
            "mpi/abi",
            "mpi/bootstrap",
            "mpi/collective",
            "mpi/datatype",
            "mpi/info",
            "mpi/progress",
            "mpi/request",
            "mpi/rma",
            "runtime",
            "transport",
            "transport/shm",
        ],
    ),
    (
        "mpi/init",
        &[
            "mpi/abi",
            "mpi/bootstrap",
            "mpi/collective",
            "mpi/datatype",
            "mpi/progress",
            "mpi/request",
            "mpi/window",
            "runtime",
        ],
    ),
    (
        "capi",
        &[
            "engine",
            "mpi/abi",
            "mpi/info",
            "mpi/request",
            "mpi/rma",
            "mpi/window",
            "runtime",
            "transport/shm",
        ],
    ),
];

/// The part that `words` (a file below `src`, or a path of modules) belong to.
fn part_of(words: &[&str]) -> Option<&'static str> {
    let known = |name: &str| PARTS.iter().map(|part| part.0).find(|part| *part == name);
    match words {
        [first, second, ..] => known(&format!("{first}/{second}")).or_else(|| known(first)),
        [first] => known(first),
        [] => None,
    }
}

#[test]
fn parts_use_what_stands_above_them() {
    let place = |name: &str| PARTS.iter().position(|part| part.0 == name);
    let mut found = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for source in sources("src") {
        let inside = source.path.trim_start_matches("src/").trim_end_matches(".rs");
        let Some(from) = part_of(&inside.split('/').collect::<Vec<_>>()) else { continue };
        for (number, line) in source.code.iter().enumerate() {
            for path in line.split("crate::").skip(1) {
                let end = path.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                let words: Vec<&str> = path[..end.unwrap_or(path.len())].split("::").collect();
                let Some(to) = part_of(&words).filter(|to| *to != from) else { continue };
                seen.insert((from, to));
                let allowed = PARTS.iter().any(|part| part.0 == from && part.1.contains(&to));
                if !allowed {
                    found.push(format!("{}:{}: {from} uses {to}", source.path, number + 1));
                }
            }
        }
    }
    for (name, uses) in PARTS {
        for used in *uses {
            if !seen.contains(&(*name, *used)) {
                found.push(format!("{name} no longer uses {used}: take it out of the table"));
            }
            if place(used) >= place(name) {
                found.push(format!("{name} stands above {used} in the table, and uses it"));
            }
        }
    }
    report(
        "each part of src uses what PARTS in tests/tidy/parts.rs says",
        "a reader may learn the parts one after the other, and each can be tested without those \
         below",
        &found,
    );
}
