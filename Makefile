# On a fresh Debian 12 with Rust: `make run` shows what Spillway does, `make test` checks that it does it.

export CARGO_TARGET_DIR ?= $(CURDIR)/target

.PHONY: figures run install uninstall package rig programs test test-full sim build lint clippy loom fuzz deny setup test-tools

# Builds, and runs a real program on far memory.
run: setup
	cargo build --locked --release --workspace
	scripts/main-job "$(CARGO_TARGET_DIR)/release/spillway"

# The command, its library, manual pages and completions, for all users: make && sudo make install. PREFIX=~/.local for
# one user; DESTDIR for those who make packages.
PREFIX = /usr/local
install: $(CARGO_TARGET_DIR)/release/libspillway_preload.so
	scripts/install "$(CARGO_TARGET_DIR)/release" "$(DESTDIR)$(PREFIX)"

uninstall:
	scripts/uninstall "$(DESTDIR)$(PREFIX)"

# A release build, where there is none yet. Where there is one no cargo is looked for: sudo has none on PATH.
$(CARGO_TARGET_DIR)/release/libspillway_preload.so:
	scripts/setup
	cargo build --locked --release -p spillway -p spillway-preload

# The same and more as a package for Debian: target/debian/spillway_*.deb.
package: setup
	cargo build --locked --release -p spillway -p spillway-preload
	scripts/package

# Guests with a fast and a slow memory node run workloads under each policy; results in target/rig/results.json. RIG="--quick" for
# less of it.
rig: setup
	scripts/install-packages qemu-system-x86=qemu-system-x86_64 gcc libc6-dev
	cargo build --locked --release -p spillway
	scripts/guest-kernel "$(CARGO_TARGET_DIR)/guest-kernel" >/dev/null
	"$(CARGO_TARGET_DIR)/release/spillway" bench rig --kernel "$(CARGO_TARGET_DIR)/guest-kernel" \
		--to "$(CARGO_TARGET_DIR)/rig" $(RIG)

# Real programs under Spillway and under Linux swap, as root; the page is docs/research/programs-whole.md. PROGRAMS=--quick has small
# inputs, and programs-benchmark.md as its page. What is measured is kept in target/programs*.json: run it again to go on.
PROGRAMS_SAVE = $(CARGO_TARGET_DIR)/programs$(subst $() ,,$(PROGRAMS)).json
programs: setup
	scripts/install-bench-programs
	cargo build --locked --release --workspace
	status=0; "$(CARGO_TARGET_DIR)/release/spillway" bench programs --save "$(PROGRAMS_SAVE)" $(PROGRAMS) || status=$$?; \
	"$(CARGO_TARGET_DIR)/release/spillway" bench report --to docs/research "$(PROGRAMS_SAVE)" && exit $$status

# The pages of numbers that commands make, each with its commit and day, as root: docs/README.md has the list. FIGURES="ablation
# figures" for these alone.
figures: setup
	scripts/install-bench-programs
	cargo build --locked --release --workspace
	scripts/figures "$(CARGO_TARGET_DIR)/release/spillway" $(FIGURES)

# Everything that must hold before a change is merged. The aim is 15 minutes on 2 cores; it takes 13 to 16 where all is built.
test: setup test-tools
	cargo fmt --all --check
	$(MAKE) --no-print-directory build
	scripts/test

# What holds in either fault mode.
FAULT_MODE_TESTS = --test faults --test faults_direct --test faults_full --test full_faults --test programs --test programs_limit --test programs_process \
	--test full_programs

# The same and what takes longer: the build for release, whole programs and virtual machines, in either fault mode, tests of paging
# over further stores and modes, fuzzing, licences and advisories.
test-full: test
	scripts/install-bench-programs
	scripts/test-release
	cargo test --locked -p spillway --features full-tests
	SPILLWAY_FAULT_MODE=thread cargo test --locked -p spillway --features full-tests $(FAULT_MODE_TESTS)
	$(MAKE) --no-print-directory sim
	$(MAKE) --no-print-directory fuzz
	$(MAKE) --no-print-directory deny

# An hour of simulated worlds, then every planted mistake (docs/concepts/simulator.md).
sim:
	cargo run --locked --release -p spillway-sim -- --seconds 3600
	cargo test --locked --release -p spillway-sim --features planted-bugs --test mistakes

# The command, the preloaded library and the tests, in the profile that tests run in.
build:
	cargo build --locked --workspace --all-targets

lint:
	cargo fmt --all --check
	$(MAKE) --no-print-directory clippy

clippy:
	cargo clippy --locked --workspace --all-targets -- --deny warnings

loom:
	scripts/loom

fuzz:
	scripts/fuzz 60

deny:
	scripts/deny

setup:
	scripts/setup

test-tools:
	scripts/install-test-tools
