# make run    build nicache and run it with the demonstration site (ARGS="--memory 1G -- nginx ..."
#             for your own server)
# make demo   build nicache and nicache-lab and show a real application behind it (APP=wordpress,
#             flask, ...; `nicache demo --help` lists them)
# make test   all tests, two programs at a time; they make network namespaces, so they run as root
#             (sudo is used if you are not)
# make test-kernels  the main jobs on the stock kernels of Debian, each in a virtual machine (an hour
#             without KVM)
# make lint   formatting, links, words, lines and the claims of ARCHITECTURE.md, clippy, and licenses
#             by cargo-deny; warnings are errors
# make doc    the crates' documentation, in target/doc; warnings are errors
# make bench  most benchmarks: nicache against nginx, Apache, Varnish and HAProxy, static and
#             dynamic (two and a half hours; ARGS=--quick for a look), simulations
#             (CACHESIM=libCacheSim's program to compare), the card alone, and parts of it; the
#             others are `nicache-lab bench` nfs, forward, yocum, impair and siege
# make deb    Debian packages of nicache and nicache-lab, in dist/ (the service is not started: it
#             needs /etc/nicache/nicache.toml first)
# make tarball  the same as an archive for any Linux of this architecture, statically linked
#
# Whatever is missing on the machine is installed first (tools/setup).

ARGS ?=
APP ?= wordpress
CARGO_FLAGS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# A toolchain that tools/setup has installed just now comes first.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH):/usr/sbin:/sbin

.PHONY: run demo build lab test test-kernels format links doc lint bench deb tarball clean
.DEFAULT_GOAL := run

run: build
	@$(SUDO) $(TARGET)/release/nicache run $(ARGS)

demo: lab
	@$(SUDO) $(TARGET)/release/nicache-lab demo $(APP) $(ARGS)

build:
	@tools/setup run
	cargo build --release --locked -p nicache $(CARGO_FLAGS)

# The laboratory's program, and nicache beside it.
lab:
	@tools/setup run
	cargo build --release --locked -p nicache -p nicache-lab $(CARGO_FLAGS)

test:
	@tools/setup test
	@tools/test $(CARGO_FLAGS)

test-kernels: lab
	@tools/setup kernels
	@tools/kernels/matrix $(ARGS)

format:
	cargo fmt --all --check

links:
	@tools/links
	@tools/words
	@tools/lines
	@tools/claims

doc:
	RUSTDOCFLAGS="$(RUSTDOCFLAGS) -D warnings" cargo doc --workspace --no-deps \
		--document-private-items --locked --quiet $(CARGO_FLAGS)

# Targets that clippy looks at; with none: libraries and programs.
LINT_TARGETS ?= --all-targets
lint: format links
	@tools/setup lint
	cargo clippy --workspace $(LINT_TARGETS) --locked $(CARGO_FLAGS) -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo "lint: cargo-deny is not installed: licenses and sources were not checked" >&2; fi

bench: lab
	@tools/setup bench
	$(SUDO) $(TARGET)/release/nicache-lab bench wire --save docs/bench/wire.json \
		--figure docs/bench/wire.svg $(ARGS)
	$(SUDO) $(TARGET)/release/nicache-lab bench curves --save docs/bench/curves.json \
		--figure docs/bench/curves.svg $(ARGS)
	$(SUDO) $(TARGET)/release/nicache-lab bench dynamic --save docs/bench/dynamic.json \
		--figure docs/bench/dynamic.svg $(ARGS)
	$(SUDO) $(TARGET)/release/nicache-lab bench kim --save docs/bench/kim.json \
		--figure docs/bench/kim.svg $(ARGS) $(LOGS)
	$(SUDO) $(TARGET)/release/nicache-lab bench sets --save docs/bench/sets.json \
		--figure docs/bench/sets.svg $(ARGS)
	$(TARGET)/release/nicache-lab bench sim --save docs/bench/sim.json \
		--figure docs/bench/sim.svg $(ARGS) $(if $(CACHESIM),--peer $(CACHESIM))
	$(TARGET)/release/nicache-lab bench pipeline
	cargo bench --workspace --locked $(CARGO_FLAGS)

deb: lab
	@tools/deb $(TARGET)/release/nicache dist
	@tools/deb $(TARGET)/release/nicache-lab dist

# glibc itself, libelf and zlib are linked in. What remains of the machine: /bin/sh and the programs
# that commands name.
STATIC := $(shell uname -m)-unknown-linux-gnu
tarball:
	@tools/setup build
	RUSTFLAGS="$(RUSTFLAGS) -C target-feature=+crt-static" \
		LIBBPF_SYS_LIBRARY_PATH=/usr/lib/$(shell uname -m)-linux-gnu \
		cargo build --release --locked -p nicache -p nicache-lab \
		--features nicache/static,nicache-lab/static --target $(STATIC) $(CARGO_FLAGS)
	@tools/tarball $(TARGET)/$(STATIC)/release/nicache dist
	@tools/tarball $(TARGET)/$(STATIC)/release/nicache-lab dist

clean:
	cargo clean
