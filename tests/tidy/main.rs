//! The house rules, each with its reason in the message. `docs/ARCHITECTURE.md` has the picture.

mod parts;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One source file: its lines, and the same lines without comments and literals.
struct Source {
    path: String,
    lines: Vec<String>,
    code: Vec<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `folder` with one of the endings, sorted, paths relative to the repository.
fn files(folder: &str, endings: &[&str]) -> Vec<String> {
    fn walk(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, endings, found);
            } else if path
                .extension()
                .is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted))
            {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), endings, &mut found);
    let mut names: Vec<String> = found
        .iter()
        .filter_map(|path| path.strip_prefix(root()).ok()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn sources(folder: &str) -> Vec<Source> {
    files(folder, &["rs"])
        .into_iter()
        .map(|path| {
            let text = read(&path);
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let code = strip(&text);
            Source { path, lines, code }
        })
        .collect()
}

/// The lines of a Rust text with comments and the contents of literals blanked.
fn strip(text: &str) -> Vec<String> {
    let mut out = String::new();
    let bytes: Vec<char> = text.chars().collect();
    let (mut at, mut depth) = (0, 0_usize);
    let (mut in_line, mut in_string) = (false, false);
    let next = |at: usize| bytes.get(at + 1).copied().unwrap_or(' ');
    while at < bytes.len() {
        let c = bytes[at];
        if c == '\n' {
            in_line = false;
            out.push('\n');
        } else if in_line {
        } else if depth > 0 {
            if c == '*' && next(at) == '/' {
                depth -= 1;
                at += 1;
            } else if c == '/' && next(at) == '*' {
                depth += 1;
                at += 1;
            }
        } else if in_string {
            if c == '\\' {
                at += 1;
                if bytes.get(at) == Some(&'\n') {
                    out.push('\n');
                }
            } else if c == '"' {
                in_string = false;
                out.push('"');
            }
        } else if c == '/' && next(at) == '/' {
            in_line = true;
        } else if c == '/' && next(at) == '*' {
            depth = 1;
            at += 1;
        } else if c == '"' {
            in_string = true;
            out.push('"');
        } else if c == '\'' && next(at) == '"' && bytes.get(at + 2) == Some(&'\'') {
            at += 2; // the literal '"'
        } else {
            out.push(c);
        }
        at += 1;
    }
    out.lines().map(str::to_owned).collect()
}

/// True if `line` contains `word`, not as a part of a longer name.
fn mentions(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts = !word.starts_with(is_name) || !before.is_some_and(is_name);
        let ends = !word.ends_with(is_name) || !after.is_some_and(is_name);
        starts && ends
    })
}

fn report(rule: &str, reason: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}\n  because {reason}\n  but:\n    {}", found.join("\n    "));
}

/// Lines of code below `folder` (without those of `except`) that mention one of the words.
fn mentioned(folder: &str, except: &[&str], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources(folder).iter().filter(|source| !except.contains(&source.path.as_str())) {
        for (number, line) in source.code.iter().enumerate() {
            for word in words.iter().filter(|word| mentions(line, word)) {
                found.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    found
}

const HANDLES: &[&str] = &[
    "MPI_Win",
    "MPI_Request",
    "MPI_Comm",
    "MPI_Group",
    "MPI_Datatype",
    "MPI_Op",
    "MPI_Info",
    "MPI_Status",
    "MPI_Aint",
    "MPI_Errhandler",
    "MPI_File",
    "MPI_Message",
];

#[test]
fn the_engine_is_pure() {
    let reason = "it decides and does no I/O: the same engine runs in production and under \
                  virtual time, so it may see no clock, thread, \
                  environment, transport or host";
    let foreign = [
        "crate::transport",
        "crate::runtime",
        "crate::mpi",
        "crate::capi",
        "crate::sync",
        "std::time",
        "std::thread",
        "std::env",
        "std::fs",
        "std::io",
        "std::net",
        "std::process",
        "std::os",
        "std::ffi",
        "std::sync",
        "core::sync",
        "libc",
        "log",
        "Instant",
        "SystemTime",
        "thread_local",
        "static mut",
        "extern",
    ];
    report(
        "src/engine uses nothing but collections",
        reason,
        &mentioned("src/engine", &[], &foreign),
    );
    report("src/engine knows no MPI handle", reason, &mentioned("src/engine", &[], HANDLES));
    report("src/engine has no unsafe code", reason, &mentioned("src/engine", &[], &["unsafe"]));
    assert!(
        read("src/engine/mod.rs").contains("#![forbid(unsafe_code)]"),
        "src/engine/mod.rs must carry #![forbid(unsafe_code)]: the compiler, not a habit, keeps \
         unsafe out of the engine"
    );
}

#[test]
fn no_cfg_switches_the_engine() {
    let mut found = Vec::new();
    for source in sources("src/engine") {
        for (number, line) in source.code.iter().enumerate() {
            if (line.contains("cfg(") || line.contains("cfg!(")) && !line.contains("cfg(test)") {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    report("src/engine has no cfg but cfg(test)", "what is tested must be what runs", &found);
}

#[test]
fn arrows_point_one_way() {
    report(
        "src/transport uses the engine's port and src/sync only",
        "transport moves bytes; runtime joins it with the engine, and only the host glue knows MPI",
        &[
            mentioned("src/transport", &[], &["crate::runtime", "crate::mpi", "crate::capi"]),
            mentioned("src/transport", &[], HANDLES),
        ]
        .concat(),
    );
    report(
        "src/runtime does not know the host glue",
        "src/mpi and src/capi only translate; nothing below them may depend on how",
        &[
            mentioned("src/runtime", &[], &["crate::mpi", "crate::capi"]),
            mentioned("src/runtime", &[], HANDLES),
        ]
        .concat(),
    );
    report(
        "src/sync depends on nothing of this crate",
        "it is the one place that chooses between std and loom",
        &mentioned(
            "src/sync",
            &[],
            &["crate::engine", "crate::transport", "crate::runtime", "crate::mpi", "crate::capi"],
        ),
    );
    let mut readers = Vec::new();
    for folder in ["src/engine", "src/transport", "src/runtime", "src/sync"] {
        readers.extend(mentioned(folder, &[], &["abi::sys", "bindings"]));
        for source in sources(folder) {
            for (number, line) in
                source.code.iter().enumerate().filter(|(_, line)| line.contains("PMPI_"))
            {
                readers.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    report(
        "only src/mpi and src/capi read the host's bindings",
        "they are the only readers of mpi.h",
        &readers,
    );
    report(
        "only src/mpi/abi/world.rs reads the environment",
        "settings are in one table (src/runtime/config.rs), and all processes agree on them at \
         MPI_Init",
        &mentioned("src", &["src/mpi/abi/world.rs"], &["env::var", "env::var_os", "env::vars"]),
    );
}

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for folder in ["src", "tests", "microbench", "mpix-headers"] {
        for path in files(folder, &["rs", "c", "h", "cpp", "py", "sh"]) {
            let lines = read(&path).lines().count();
            if lines > 1000 {
                found.push(format!("{path}: {lines} lines"));
            }
        }
    }
    report(
        "no file has more than 1000 lines",
        "readers read a file as a whole; aim for at most 700",
        &found,
    );
}

#[test]
fn lines_are_short() {
    let mut found = Vec::new();
    for folder in ["src", "tests", "microbench", "mpix-headers", "docs"] {
        for path in files(folder, &["rs", "c", "h", "py", "md"]) {
            for (number, line) in (1..).zip(read(&path).lines()) {
                let begin = if path.ends_with(".md") { "|" } else { "//" };
                let is_table = line.trim_start().starts_with(begin) && line.contains("| ");
                if line.chars().count() > 100 && !is_table {
                    found.push(format!("{path}:{number}"));
                }
            }
        }
    }
    report("no line has more than 100 columns, but those of tables", "as rustfmt has it", &found);
}

#[test]
fn unsafe_says_why_it_is_sound() {
    let mut found = Vec::new();
    for source in sources("src") {
        for (number, line) in source.code.iter().enumerate() {
            if !(mentions(line, "unsafe")
                && (line.contains("unsafe {") || line.contains("unsafe impl")))
            {
                continue;
            }
            // The comment stands on the line, or above the statement that the block belongs to.
            let start = number.saturating_sub(8);
            if !source.lines[start..=number].iter().any(|line| line.contains("SAFETY:")) {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    report(
        "each unsafe block and impl has a SAFETY: comment",
        "whoever changes the code must know what it relies on",
        &found,
    );
}

#[test]
fn nothing_is_unfinished() {
    let macros = ["todo!", "unimplemented!", "dbg!"];
    let mut found = mentioned("src", &[], &macros);
    for folder in ["src", "tests", "microbench", "mpix-headers"] {
        for path in files(folder, &["rs", "c", "h", "cpp", "py", "sh"])
            .iter()
            .filter(|path| *path != "tests/tidy/main.rs")
        {
            for (number, line) in read(path).lines().enumerate() {
                if ["TODO", "FIXME", "XXX"].iter().any(|word| mentions(line, word)) {
                    found.push(format!("{path}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    report(
        "no todo!, unimplemented!, dbg!, TODO",
        "unfinished work must not look finished; the documentation lists what is missing",
        &found,
    );
    report(
        "src prints to standard error by `log` or the error path alone",
        "a library's standard output belongs to the program",
        &{
            let mut printed = mentioned("src", &[], &["println!", "print!"]);
            printed.extend(mentioned(
                "src",
                &["src/mpi/abi/error.rs", "src/mpi/abi/host.rs"],
                &["eprintln!", "eprint!"],
            ));
            printed
        },
    );
}

#[test]
fn tests_do_not_sleep() {
    let mut found = mentioned("tests", &["tests/tidy/main.rs"], &["thread::sleep", "sleep"]);
    for path in files("tests", &["c", "cpp", "h"]) {
        for (number, line) in read(&path).lines().enumerate() {
            if ["sleep", "usleep", "nanosleep", "alarm"]
                .iter()
                .any(|call| line.contains(&format!("{call}(")))
            {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    report(
        "no test sleeps",
        "a sleep orders nothing: it hides a race on a fast machine and shows a false one on a \
         slow one",
        &found,
    );
}

/// The rules that `docs/SPEC.md` states, by its headings: `### EP-1 Opening calls never block`.
fn stated_rules() -> BTreeSet<String> {
    let spec = read("docs/SPEC.md");
    let headings =
        spec.lines().filter_map(|line| line.strip_prefix("### ")?.split_whitespace().next());
    let mut stated = BTreeSet::new();
    for id in headings {
        assert!(stated.insert(id.to_owned()), "docs/SPEC.md states {id} twice");
    }
    stated
}

/// Every id of a rule of one of these families in a text; `LK-1 to LK-6` cites all six.
fn cited_rules(text: &str, families: &BTreeSet<&str>) -> BTreeSet<String> {
    let number_of = |word: &str| {
        let (family, number) = word.split_once('-')?;
        Some((*families.get(family)?, number.parse::<u32>().ok()?)).filter(|_| number.len() < 3)
    };
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let mut cited = BTreeSet::new();
    for (at, word) in words.iter().enumerate() {
        let Some((family, first)) = number_of(word) else { continue };
        let range = match words.get(at + 1..at + 3) {
            Some(["to", last]) => number_of(last).filter(|(other, _)| *other == family),
            _ => None,
        };
        let last = range.map_or(first, |(_, last)| last);
        cited.extend((first..=last).map(|number| format!("{family}-{number}")));
    }
    cited
}

#[test]
fn rules_are_cited_where_they_are_kept_and_tested() {
    let stated = stated_rules();
    let families: BTreeSet<&str> = stated.iter().filter_map(|id| id.split('-').next()).collect();
    let (mut kept, mut tested, mut unknown) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (folder, endings) in [
        ("src", &["rs", "c"][..]),
        ("tests", &["rs", "c", "h", "cpp", "inc", "f90", "F90", "py", "md"]),
        ("mpix-headers", &["h", "f90"]),
        ("microbench", &["c", "h", "py", "md"]),
        ("docs", &["md"]),
    ] {
        for path in files(folder, endings)
            .iter()
            .filter(|path| !["tests/tidy/main.rs", "docs/SPEC.md"].contains(&path.as_str()))
        {
            for id in cited_rules(&read(path), &families) {
                if !stated.contains(&id) {
                    unknown.push(format!("{path}: [{id}]"));
                }
                match folder {
                    "src" => kept.insert(id),
                    "tests" => tested.insert(id),
                    _ => true,
                };
            }
        }
    }
    report("every rule that is cited is in docs/SPEC.md", "else nobody can look it up", &unknown);
    let mut missing: Vec<String> =
        stated.difference(&kept).map(|id| format!("[{id}] in no file of src")).collect();
    missing.extend(stated.difference(&tested).map(|id| format!("[{id}] in no test")));
    report(
        "every rule is cited beside the code that keeps it and a test that checks it",
        "else nobody finds either",
        &missing,
    );
}

/// Rows of the table of settings in `docs/user/settings.md`: name, values, default.
fn documented_settings() -> Vec<(String, String, String)> {
    read("docs/user/settings.md")
        .lines()
        .filter(|line| line.starts_with("| `MPIX_RMA"))
        .map(|line| {
            let mut cells =
                line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', ""));
            let mut cell = || cells.next().unwrap_or_default();
            (cell(), cell(), cell())
        })
        .collect()
}

#[test]
fn the_settings_are_documented_as_they_are() {
    use mpix_rma::runtime::config::{SETTINGS, Values};
    let source: Vec<(String, String, String)> = SETTINGS
        .iter()
        .map(|setting| {
            let values = match setting.values {
                Values::Words(words) => words.join(", "),
                Values::Number(least, most) => format!("{least} to {most}"),
                Values::Text(what) => what.to_owned(),
            };
            (setting.name.to_owned(), values, setting.default.to_owned())
        })
        .collect();
    assert_eq!(
        documented_settings(),
        source,
        "the table in docs/user/settings.md must agree with src/runtime/config.rs (left: table)"
    );
    let page = read("docs/user/settings.md");
    for (name, _, _) in &source {
        assert!(
            page.lines().any(|line| line == format!("### {name}")),
            "docs/user/settings.md must describe {name} under a heading of its own"
        );
    }
    let header = read("mpix-headers/mpix_rma.h");
    for (name, _, default) in &source {
        assert!(
            header
                .lines()
                .any(|line| line.contains(name.as_str())
                    && line.contains(&format!("default {default}"))),
            "mpix_rma.h, section ENVIRONMENT, must name {name} and its default {default} on one \
             line"
        );
    }
}

/// The pages that a user reads first.
fn user_pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    pages.extend(files("docs/user", &["md"]));
    pages
}

/// Words in backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn each_security_claim_names_a_test_that_exists() {
    let tests: Vec<String> = ["src", "tests"]
        .into_iter()
        .flat_map(|folder| files(folder, &["rs"]))
        .flat_map(|path| {
            let lines: Vec<String> = read(&path).lines().map(str::to_owned).collect();
            lines.into_iter().filter_map(|line| Some(line.trim().strip_prefix("fn ")?.to_owned()))
        })
        .filter_map(|line| Some(line.split_once('(')?.0.to_owned()))
        .collect();
    let page = read("SECURITY.md");
    let claims = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| claim"));
    let mut found = Vec::new();
    for claim in claims {
        let named = claim.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or("");
        let exists = |name: &str| {
            let test = name.rsplit("::").next().unwrap_or(name);
            tests.iter().any(|known| known == test) || std::path::Path::new(name).exists()
        };
        let missing: Vec<&str> = quoted(named).filter(|name| !exists(name)).collect();
        if !missing.is_empty() || quoted(named).next().is_none() {
            found.push(format!("{claim}: {missing:?}"));
        }
    }
    report(
        "each claim of SECURITY.md names a test that exists",
        "a claim that nothing checks is soon untrue",
        &found,
    );
}

/// The lines of a page that are text, and those in fenced blocks.
fn text_and_code(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut text, mut code, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in read(page).lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else {
            if fenced { &mut code } else { &mut text }.push(line.to_owned());
        }
    }
    (text, code)
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    heading.to_lowercase().chars().filter(kept).collect::<String>().trim().replace(' ', "-")
}

#[test]
fn links_of_user_pages_lead_somewhere() {
    let mut found = Vec::new();
    for page in user_pages() {
        let folder = Path::new(&page).parent().expect("a folder").to_owned();
        let text = text_and_code(&page).0.join("\n");
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            let (path, wanted) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { PathBuf::from(&page) } else { folder.join(path) };
            let exists = root().join(&target).exists();
            let leads = exists
                && (wanted.is_empty()
                    || text_and_code(target.to_str().expect("a name")).0.iter().any(|line| {
                        line.starts_with('#')
                            && anchor(line.trim_start_matches('#').trim()) == wanted
                    }));
            if !leads {
                found.push(format!("{page}: {link}"));
            }
        }
    }
    report(
        "links of README.md and docs/user lead to files and headings",
        "a reader follows them",
        &found,
    );
}

#[test]
fn readme_quotes_the_example() {
    let example = text_and_code("docs/user/getting-started.md").1;
    let readme = read("README.md");
    let quoted = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let wrong: Vec<String> = quoted
        .expect("README.md must show some C")
        .lines()
        .filter(|line| !example.iter().any(|known| known.trim() == line.trim()))
        .map(str::to_owned)
        .collect();
    report(
        "each line of C in README.md is in the example of docs/user/getting-started.md",
        "that one is compiled and run",
        &wrong,
    );
}

#[test]
fn the_version_is_one() {
    let header = read("mpix-headers/mpix_rma.h");
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let line = format!("#define MPIX_RMA_VERSION_{name} {value}");
        assert!(
            header.contains(&line),
            "mpix_rma.h must say `{line}`: Cargo.toml has version {}",
            env!("CARGO_PKG_VERSION")
        );
    }
    assert!(
        read("CHANGELOG.md").contains(&format!("## [{}]", env!("CARGO_PKG_VERSION"))),
        "CHANGELOG.md must have a section for version {}",
        env!("CARGO_PKG_VERSION")
    );
}

#[test]
fn the_stripper_strips() {
    let code = strip("let a = \"unsafe {\"; // unsafe {\n/* unsafe */ let b = '\"'; unsafe { }\n");
    assert_eq!(code.len(), 2);
    assert!(!code[0].contains("unsafe"), "{code:?}");
    assert!(code[1].contains("unsafe { }"), "{code:?}");
    assert!(mentions("use std::time;", "std::time") && !mentions("my_log!(1)", "log"));
    let cited =
        cited_rules("[LK-1 to LK-3], [EP-1]; not XLK-9, LK-4x or EP-2014", &["EP", "LK"].into());
    assert_eq!(cited, ["EP-1", "LK-1", "LK-2", "LK-3"].map(str::to_owned).into());
}
