//! For feature `host`: generates bindings of the MPI library's `mpi.h` and compiles the shim of
//! constants. For feature `sim`: compiles the benchmarks' schedules, which are in C. Without these
//! features it does nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "host")]
    host::main();
    #[cfg(feature = "sim")]
    schedules();
}

/// Compiles the communication schedules of LU and transactions, which the benchmark programs share.
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

    /// The parts of the command line that the compiler wrapper prints.
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
        if let Err(reason) = generate() {
            // On stderr, since cargo prints it unchanged.
            eprintln!(
                "no MPI library could be used for feature `host`:\n  - {reason}\n  \
                 Set MPICC to the compiler wrapper of the MPI library, e.g. MPICC=mpicc.mpich or \
                 MPICC=mpicc.openmpi.\n  \
                 Needed packages: Debian/Ubuntu `libmpich-dev` or `libopenmpi-dev`, \
                 `libclang-dev`, `gcc`;\n  \
                 Fedora/RHEL `mpich-devel` or `openmpi-devel`, `clang-devel`, `gcc`; spack `mpich` \
                 or `openmpi`, `llvm +clang`."
            );
            std::process::exit(1);
        }
    }

    fn generate() -> Result<(), String> {
        let wrapper = env::var("MPICC")
            .ok()
            .filter(|wrapper| !wrapper.trim().is_empty())
            .unwrap_or_else(|| "mpicc".into());
        let flags = ask(&wrapper)?;
        let bindings = bind(&flags)?;
        let (family, version) = family(&bindings).ok_or_else(|| {
            format!(
                "the mpi.h of {wrapper} defines neither MPICH_NUMVERSION nor OMPI_MAJOR_VERSION: \
                 only MPICH, Open MPI and their derivatives are known"
            )
        })?;
        println!("cargo::rustc-cfg=mpi_host=\"{family}\"");
        println!("cargo::rustc-env=MPIX_RMA_HOST={version}");
        // Functions that later versions of the standard added.
        for (name, function) in [
            ("mpi_large_count", "PMPI_Put_c"),
            ("mpi_info_get_string", "PMPI_Info_get_string"),
            ("mpi_sessions", "PMPI_Session_init"),
            ("mpi_status_lists", "PMPI_Request_get_status_all"),
            ("mpi_persistent_collectives", "PMPI_Allreduce_init"),
        ] {
            println!("cargo::rustc-check-cfg=cfg({name})");
            if bindings.contains(&format!("fn {function}(")) {
                println!("cargo::rustc-cfg={name}");
            }
        }
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        fs::write(out.join("bindings.rs"), into_host_functions(&bindings))
            .expect("OUT_DIR is writable");

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
        Ok(())
    }

    /// Gets the flags from `wrapper -show`, which MPICH's and Open MPI's wrappers understand.
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
        // A wrapper that prints no -I relies on the compiler's own search path.
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

    /// Splits a command line as a shell does: wrappers quote folders with blanks in their names.
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

    const HEADER: &str =
        "#define MPICH_SKIP_MPICXX 1\n#define OMPI_SKIP_MPICXX 1\n#include <mpi.h>\n";

    fn bind(flags: &Flags) -> Result<String, String> {
        // bindgen panics if it finds no libclang: report that like the other reasons.
        std::panic::set_hook(Box::new(|_| {}));
        let bound = std::panic::catch_unwind(|| {
            bindgen::Builder::default()
                .header_contents("wrapper.h", HEADER)
                .clang_args(flags.includes.iter().map(|folder| format!("-I{}", folder.display())))
                .clang_args(&flags.compiler)
                .allowlist_function("PMPI_.*")
                .allowlist_type("MPI_.*|PMPI_.*|MPIX_Grequest_.*")
                .allowlist_var("MPICH_NUMVERSION|OMPI_(MAJOR|MINOR|RELEASE)_VERSION")
                .allowlist_var("MPI_MAX_(ERROR_STRING|INFO_KEY)")
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

    /// Replaces the declared functions by ones that look up the host's (`host_functions!` in
    /// `src/mpi/abi/host.rs`). Variadic functions are left out, since their arguments cannot be
    /// forwarded.
    fn into_host_functions(bindings: &str) -> String {
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

    /// The host's family, as in `mpi_host`, and its name with the version.
    fn family(bindings: &str) -> Option<(&'static str, String)> {
        let number = |name: &str| {
            let (_, rest) = bindings.split_once(&format!("pub const {name}:"))?;
            let (_, value) = rest.split_once(';')?.0.split_once('=')?;
            value.trim().parse::<u64>().ok()
        };
        if let Some(major) = number("OMPI_MAJOR_VERSION") {
            let [minor, release] = ["OMPI_MINOR_VERSION", "OMPI_RELEASE_VERSION"]
                .map(|name| number(name).unwrap_or_default());
            return Some(("openmpi", format!("Open MPI {major}.{minor}.{release}")));
        }
        let number = number("MPICH_NUMVERSION")?;
        let (major, minor, release) =
            (number / 10_000_000, number / 100_000 % 100, number / 1000 % 100);
        Some(("mpich", format!("MPICH {major}.{minor}.{release}")))
    }
}
