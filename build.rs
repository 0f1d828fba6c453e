//! Builds what feature `host` needs of the MPI library: bindings of its `mpi.h` and the shim of
//! constants; and what feature `sim` needs of the benchmarks: their schedules in C. Without these
//! features nothing is looked for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "host")]
    host::main();
    #[cfg(feature = "sim")]
    schedules();
}

/// The communication of LU and transactions, as the programs on real ranks have it.
#[cfg(feature = "sim")]
fn schedules() {
    let mut build = cc::Build::new();
    println!("cargo::rerun-if-changed=microbench/schedule/schedule.h");
    for file in [
        "microbench/schedule/lu.c",
        "microbench/schedule/transactions.c",
        "src/sim/schedule_layout.c",
    ] {
        println!("cargo::rerun-if-changed={file}");
        build.file(file);
    }
    build
        .include("microbench/schedule")
        .std("c11")
        .warnings(true)
        .opt_level(2)
        .compile("mpix_rma_schedules");
}

#[cfg(feature = "host")]
mod host {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{env, fs};

    /// What the compiler wrapper says.
    #[derive(Default)]
    struct Flags {
        includes: Vec<PathBuf>,
        search: Vec<PathBuf>,
        libraries: Vec<String>,
        linker: Vec<String>,
        compiler: Vec<String>,
    }

    pub(crate) fn main() {
        for variable in ["MPICC", "PATH", "LIBCLANG_PATH"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        println!("cargo::rerun-if-changed=src/mpi/abi/shim.c");
        let mut reasons = Vec::new();
        let Some((wrapper, flags)) = probe(&mut reasons) else { give_up(&reasons) };
        let bindings = match bind(&flags) {
            Ok(text) => text,
            Err(reason) => {
                reasons.push(reason);
                give_up(&reasons)
            }
        };
        let Some((family, version)) = family(&bindings) else {
            reasons.push(format!(
                "the mpi.h of {wrapper} defines neither MPICH_VERSION nor OMPI_MAJOR_VERSION: only MPICH, Open MPI and \
                 their derivatives are known"
            ));
            give_up(&reasons)
        };
        println!("cargo::rustc-cfg=mpi_host=\"{family}\"");
        println!("cargo::rustc-env=MPIX_RMA_HOST={version}");
        // What later versions of the standard added.
        for (name, function) in [
            ("mpi_large_count", "PMPI_Put_c"),
            ("mpi_info_get_string", "PMPI_Info_get_string"),
            ("mpi_sessions", "PMPI_Session_init"),
            ("mpi_status_lists", "PMPI_Request_get_status_all"),
        ] {
            println!("cargo::rustc-check-cfg=cfg({name})");
            if bindings.contains(&format!("fn {function}(")) {
                println!("cargo::rustc-cfg={name}");
            }
        }
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        fs::write(out.join("bindings.rs"), through_places(&bindings)).expect("OUT_DIR is writable");

        let mut shim = cc::Build::new();
        shim.file("src/mpi/abi/shim.c").includes(&flags.includes).pic(true).warnings(false);
        for flag in &flags.compiler {
            shim.flag(flag);
        }
        shim.compile("mpix_rma_shim");

        for path in &flags.search {
            println!("cargo::rustc-link-search=native={}", path.display());
        }
        for library in &flags.libraries {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
        for argument in &flags.linker {
            println!("cargo::rustc-cdylib-link-arg={argument}");
        }
    }

    fn give_up(reasons: &[String]) -> ! {
        let mut text = String::from("no MPI library could be used for feature `host`:\n");
        for reason in reasons {
            text.push_str("  - ");
            text.push_str(reason);
            text.push('\n');
        }
        text.push_str(
            "  Set MPICC to the compiler wrapper of the MPI library, e.g. MPICC=mpicc.mpich or MPICC=mpicc.openmpi.\n  \
             Needed packages: Debian/Ubuntu `libmpich-dev` or `libopenmpi-dev`, `libclang-dev`, `gcc`;\n  \
             Fedora/RHEL `mpich-devel` or `openmpi-devel`, `clang-devel`, `gcc`; spack `mpich` or `openmpi`, `llvm +clang`.",
        );
        // One line per reason on stderr: cargo prints it as it stands.
        eprintln!("{text}");
        std::process::exit(1);
    }

    /// Asks the wrapper for its flags, noting every reason why one cannot be used.
    fn probe(reasons: &mut Vec<String>) -> Option<(String, Flags)> {
        let wrappers = match env::var("MPICC") {
            Ok(wrapper) if !wrapper.trim().is_empty() => vec![wrapper],
            _ => vec!["mpicc".into()],
        };
        for wrapper in wrappers {
            match ask(&wrapper) {
                Ok(flags) => return Some((wrapper, flags)),
                Err(reason) => reasons.push(reason),
            }
        }
        None
    }

    fn ask(wrapper: &str) -> Result<Flags, String> {
        let mut words = wrapper.split_whitespace();
        let program = words.next().unwrap_or("mpicc");
        let output = Command::new(program)
            .args(words)
            .arg("-show")
            .output()
            .map_err(|error| format!("`{wrapper} -show` could not be run: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "`{wrapper} -show` failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        let line = String::from_utf8_lossy(&output.stdout);
        let flags = parse(&line);
        if flags.libraries.is_empty() {
            return Err(format!("`{wrapper} -show` names no library: {}", line.trim()));
        }
        // A wrapper that names no folder relies on the compiler's own search path.
        let header = flags.includes.iter().any(|folder| folder.join("mpi.h").is_file())
            || ["/usr/include", "/usr/local/include"]
                .iter()
                .any(|folder| Path::new(folder).join("mpi.h").is_file());
        if !header {
            return Err(format!(
                "no mpi.h in the folders that `{wrapper} -show` names: {:?}",
                flags.includes
            ));
        }
        Ok(flags)
    }

    fn parse(line: &str) -> Flags {
        let mut flags = Flags::default();
        let words = split(line);
        let mut words = words.iter().skip(1).peekable();
        while let Some(word) = words.next() {
            let mut operand = |rest: &str| {
                if rest.is_empty() {
                    words.next().cloned().unwrap_or_default()
                } else {
                    rest.to_string()
                }
            };
            if let Some(rest) = word.strip_prefix("-I") {
                flags.includes.push(operand(rest).into());
            } else if word == "-isystem" {
                flags.includes.push(operand("").into());
            } else if let Some(rest) = word.strip_prefix("-L") {
                flags.search.push(operand(rest).into());
            } else if let Some(rest) = word.strip_prefix("-l") {
                flags.libraries.push(operand(rest));
            } else if word.starts_with("-Wl,") {
                flags.linker.push(word.clone());
            } else if word == "-Xlinker" {
                flags.linker.push(format!("-Wl,{}", operand("")));
            } else if word.starts_with("-D") || word.starts_with("-m") {
                flags.compiler.push(word.clone());
            } else if word.ends_with(".so") || word.contains(".so.") {
                flags.linker.push(word.clone());
            }
        }
        flags
    }

    /// Splits a shell line; wrappers quote folders with blanks in them.
    fn split(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = String::new();
        let mut quote = None;
        let mut letters = line.trim().chars();
        while let Some(letter) = letters.next() {
            match (quote, letter) {
                (Some(mark), _) if letter == mark => quote = None,
                (None, '\'' | '"') => quote = Some(letter),
                (None, '\\') => word.extend(letters.next()),
                (None, _) if letter.is_whitespace() => {
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                }
                _ => word.push(letter),
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        words
    }

    fn bind(flags: &Flags) -> Result<String, String> {
        // bindgen panics where it finds no libclang; the reason belongs in our list.
        std::panic::set_hook(Box::new(|_| {}));
        let bound = std::panic::catch_unwind(|| {
            bindgen::Builder::default()
                .header_contents("wrapper.h", "#define MPICH_SKIP_MPICXX 1\n#define OMPI_SKIP_MPICXX 1\n#include <mpi.h>\n")
                .clang_args(flags.includes.iter().map(|folder| format!("-I{}", folder.display())))
                .clang_args(&flags.compiler)
                .allowlist_function("PMPI_.*")
                .allowlist_type("MPI_.*|PMPI_.*|MPIX_Grequest_.*")
                .allowlist_var("MPICH_VERSION|MPICH_NUMVERSION|OMPI_(MAJOR|MINOR|RELEASE)_VERSION|MPI_VERSION|MPI_SUBVERSION|MPI_MAX_ERROR_STRING|MPI_MAX_INFO_KEY")
                .layout_tests(false)
                .generate_comments(false)
                .merge_extern_blocks(true)
                .generate()
        });
        let _ = std::panic::take_hook();
        match bound {
            Ok(Ok(bindings)) => Ok(bindings.to_string()),
            Ok(Err(error)) => Err(format!("bindgen could not read mpi.h: {error}")),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("unknown");
                Err(format!(
                    "bindgen could not load libclang (install libclang-dev, or set LIBCLANG_PATH): {text}"
                ))
            }
        }
    }

    /// Makes the functions of the bindings ones that look up the host's (`src/mpi/abi/host.rs`). Those
    /// with a variable list of arguments cannot be passed on, and are left out.
    fn through_places(bindings: &str) -> String {
        let mut text = String::new();
        let mut rest = bindings;
        while let Some(at) = rest.find("\nunsafe extern \"C\" {\n") {
            let (before, block) = rest.split_at(at + 1);
            let (block, after) = block.split_at(block.find("\n}\n").expect("a block has an end"));
            let functions = block.split_once('\n').map_or("", |(_, functions)| functions);
            text.push_str(before);
            text.push_str("host_functions! {\n");
            for function in
                functions.split_inclusive(';').filter(|function| !function.contains("..."))
            {
                text.push_str(function);
            }
            rest = after;
        }
        text.push_str(rest);
        text
    }

    /// The host's family and its version in words.
    fn family(bindings: &str) -> Option<(&'static str, String)> {
        let value = |name: &str| {
            let at = bindings.find(&format!("pub const {name}:"))?;
            let line = bindings[at..].lines().next()?;
            Some(
                line.split('=')
                    .nth(1)?
                    .trim()
                    .trim_matches(|c| ";bc\"\\0 ".contains(c) && c != '0')
                    .to_string(),
            )
        };
        if let Some(major) = value("OMPI_MAJOR_VERSION") {
            let part = |name| value(name).unwrap_or_default();
            return Some((
                "openmpi",
                format!(
                    "Open MPI {major}.{}.{}",
                    part("OMPI_MINOR_VERSION"),
                    part("OMPI_RELEASE_VERSION")
                ),
            ));
        }
        // `MPICH_VERSION` is a string constant on two lines in some bindgen versions: the number is
        // enough.
        let number: u64 = value("MPICH_NUMVERSION")?.parse().ok()?;
        Some((
            "mpich",
            format!(
                "MPICH {}.{}.{}",
                number / 10_000_000,
                number / 100_000 % 100,
                number / 1000 % 100
            ),
        ))
    }
}
