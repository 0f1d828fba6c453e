//! Prototypes in `mpix_rma.h`, exported symbols, and MPIX/PMPIX pairs agree; every host call that
//! is taken over exists.
//!
//! The symbols are those of the libraries that `make` has built
//! (`target/HOST/release/libmpix_rma.so`). Where there is none, that part says so and is skipped:
//! the library's own tests build without any MPI.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    [
        "mpix_rma.h",
        "mpix_notify.h",
        "mpix_persistent.h",
        "mpix_dup.h",
        "mpix_collective.h",
        "mpix_neighbor.h",
        "mpix_continue.h",
        "mpix_task.h",
    ]
    .map(|name| {
        std::fs::read_to_string(root().join("mpix-headers").join(name))
            .expect("the header is there")
    })
    .concat()
}

/// Prototypes as `name -> parameters`, from the header without its comments.
fn prototypes() -> Vec<(String, String)> {
    let mut text = header();
    while let Some(start) = text.find("/*") {
        let end = text[start..].find("*/").map_or(text.len(), |at| start + at + 2);
        text.replace_range(start..end, "");
    }
    text.split(';')
        .filter_map(|statement| {
            let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            let declaration = &statement
                [statement.rfind("int MPIX_").or_else(|| statement.rfind("int PMPIX_"))?..];
            let (name, parameters) = declaration.strip_prefix("int ")?.split_once('(')?;
            Some((name.trim().to_owned(), parameters.trim_end_matches(')').to_owned()))
        })
        .collect()
}

#[test]
fn each_call_has_its_twin() {
    let all = prototypes();
    assert_eq!(
        all.len(),
        254,
        "17 calls on epochs, 2 atomics with a request, 40 on notifications, 14 persistent ones, \
         MPIX_Win_dup, 33 persistent collectives, 10 of neighbours, 4 on continuations, 3 on \
         tasks, MPIX_Get_version, and their twins"
    );
    for (name, parameters) in all.iter().filter(|(name, _)| name.starts_with("MPIX_")) {
        let twin = all.iter().find(|(other, _)| *other == format!("P{name}"));
        assert_eq!(
            twin.map(|(_, parameters)| parameters),
            Some(parameters),
            "P{name} must have the parameters of {name}"
        );
    }
}

#[test]
fn each_call_is_documented() {
    let text = header();
    let prose: String =
        text.split("/*").skip(1).map(|rest| rest.split("*/").next().unwrap_or(rest)).collect();
    for (name, _) in prototypes().iter().filter(|(name, _)| name.starts_with("MPIX_")) {
        let words = prose.split(|c: char| !c.is_alphanumeric() && c != '_');
        assert!(
            words.into_iter().any(|word| word == name),
            "the header's prose must describe {name}: it is the C documentation"
        );
    }
}

/// Names that a library defines for others.
fn exported(library: &Path) -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm runs");
    assert!(
        output.status.success(),
        "nm {}: {}",
        library.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect()
}

/// The libraries that were built, one per host.
fn built() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(root().join("target"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("release/libmpix_rma.so"))
        .filter(|path| path.exists())
        // Built without the host glue it exports nothing.
        .filter(|path| exported(path).iter().any(|name| name.starts_with("MPI")))
        .collect();
    found.sort();
    if found.is_empty() {
        eprintln!("SKIP: no library is built in target/HOST/release; run `make build` first");
    }
    found
}

#[test]
fn the_library_exports_what_the_header_promises_and_nothing_else_of_mpix() {
    let promised: BTreeSet<String> = prototypes().into_iter().map(|(name, _)| name).collect();
    for library in built() {
        let ours: BTreeSet<String> = exported(&library)
            .into_iter()
            .filter(|name| name.starts_with("MPIX_") || name.starts_with("PMPIX_"))
            .collect();
        // Hosts have MPIX_ calls of their own (grequests with a poll function); none may be taken
        // over by accident.
        assert_eq!(
            ours,
            promised,
            "{}: exported MPIX_ and PMPIX_ names (left) against the header (right)",
            library.display()
        );
    }
}

/// The host's library, as the dynamic linker finds it for ours.
fn host_library(library: &Path) -> Option<PathBuf> {
    let output = Command::new("ldd").arg(library).output().ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.trim_start().starts_with("libmpi"))
        .find_map(|line| line.split("=>").nth(1)?.split_whitespace().next().map(PathBuf::from))
        .filter(|path| path.is_absolute())
}

#[test]
fn each_call_taken_over_exists_in_the_host() {
    for library in built() {
        let Some(host) = host_library(&library) else {
            eprintln!("SKIP: ldd does not find the host's library of {}", library.display());
            continue;
        };
        let theirs = exported(&host);
        let taken: BTreeSet<String> = exported(&library)
            .into_iter()
            .filter(|name| name.starts_with("MPI_") || name.starts_with("PMPI_"))
            .collect();
        assert!(
            taken.len() >= AT_LEAST.len(),
            "{}: only {} MPI_ calls are taken over",
            library.display(),
            taken.len()
        );
        let unknown: Vec<&String> = taken.difference(&theirs).collect();
        assert!(
            unknown.is_empty(),
            "{} takes over calls that {} does not have: {unknown:?}",
            library.display(),
            host.display()
        );
    }
}

/// Fortran wrappers and tools call `PMPI_*`: one window must not be served under one name by us and
/// under the other by the host.
#[test]
fn each_call_taken_over_has_both_names() {
    for library in built() {
        let names = exported(&library);
        let plain: BTreeSet<String> = names
            .iter()
            .filter(|name| name.starts_with("MPI"))
            .map(|name| format!("P{name}"))
            .collect();
        let profiled: BTreeSet<String> =
            names.into_iter().filter(|name| name.starts_with("PMPI")).collect();
        // MPICH's own function for attributes in Fortran has one name.
        let odd: Vec<&String> = plain
            .symmetric_difference(&profiled)
            .filter(|name| *name != "PMPII_Win_get_attr")
            .collect();
        assert!(odd.is_empty(), "{}: without their twin: {odd:?}", library.display());
    }
}

/// A tool that defines `MPI_Put` and calls `PMPI_Put` must not be called again by the latter, nor
/// must our own calls come back to us: no name of MPI is looked up by the dynamic linker but the
/// one that ties us to the host (`src/mpi/abi/host.rs`).
#[test]
fn no_call_goes_by_a_name_that_others_may_define() {
    for library in built() {
        let output = Command::new("nm")
            .args(["-D", "--undefined-only"])
            .arg(&library)
            .output()
            .expect("nm runs");
        assert!(output.status.success(), "nm {}", library.display());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let named: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1))
            .filter(|name| name.starts_with("MPI") || name.starts_with("PMPI"))
            .collect();
        assert_eq!(named, ["PMPI_Get_library_version"], "{}", library.display());
        let output =
            Command::new("readelf").args(["-rW"]).arg(&library).output().expect("readelf runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let own: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(4))
            .map(|name| name.split('@').next().unwrap_or(name))
            .filter(|name| {
                (name.starts_with("MPI") || name.starts_with("PMPI"))
                    && *name != "PMPI_Get_library_version"
            })
            .collect();
        assert!(own.is_empty(), "{} goes by names of its own: {own:?}", library.display());
    }
}

/// What must be taken over on every host: the one-sided calls, and whatever completes a request.
const AT_LEAST: &[&str] = &[
    "MPI_Win_create",
    "MPI_Win_allocate",
    "MPI_Win_free",
    "MPI_Win_fence",
    "MPI_Win_start",
    "MPI_Win_complete",
    "MPI_Win_post",
    "MPI_Win_wait",
    "MPI_Win_test",
    "MPI_Win_lock",
    "MPI_Win_unlock",
    "MPI_Win_lock_all",
    "MPI_Win_unlock_all",
    "MPI_Win_flush",
    "MPI_Win_flush_all",
    "MPI_Win_flush_local",
    "MPI_Win_flush_local_all",
    "MPI_Win_sync",
    "MPI_Put",
    "MPI_Get",
    "MPI_Accumulate",
    "MPI_Get_accumulate",
    "MPI_Fetch_and_op",
    "MPI_Compare_and_swap",
    "MPI_Rput",
    "MPI_Rget",
    "MPI_Raccumulate",
    "MPI_Rget_accumulate",
    "MPI_Init",
    "MPI_Init_thread",
    "MPI_Finalize",
];

#[test]
fn the_one_sided_calls_are_taken_over() {
    for library in built() {
        let names = exported(&library);
        let missing: Vec<&&str> = AT_LEAST.iter().filter(|name| !names.contains(**name)).collect();
        assert!(missing.is_empty(), "{} does not define {missing:?}", library.display());
    }
}
