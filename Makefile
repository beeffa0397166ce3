# Two commands do all set-up: `make demo` runs the main job, `make test` passes the tests.
CARGO ?= cargo
OUT   ?= docs/bench

# Recipes that take programs from where they were built say where that is, whatever the environment says.
demo install dist bench-simulator bench-path bench-published bench-profiles bench-compare bench-bad-paths bench-proxy: export CARGO_TARGET_DIR = $(CURDIR)/target

.PHONY: install dist static deb demo test bench bench-path bench-codes bench-loopback bench-sim bench-simulator bench-published bench-profiles bench-compare bench-bad-paths bench-proxy fmt lint

# Builds, then sends a real file between two real processes over a bad path; kernel TCP beside it.
demo: toolchain
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli
	./target/release/dfcp demo

# dfcp with man pages and completions; PREFIX=$$HOME/.local for one user, DESTDIR for packagers. Where a
# superuser has no cargo what `make dist` has built is installed.
PREFIX ?= /usr/local
install:
	@./packaging/may-write "$(DESTDIR)$(PREFIX)"
	@if command -v $(firstword $(CARGO)) >/dev/null || [ ! -x target/dist/dfcp ]; then $(MAKE) --no-print-directory dist; \
	else echo "cargo is not here: what was built before is installed, target/dist/dfcp"; fi
	./packaging/extras target/dist/dfcp target/packaging
	install -D -m 755 target/dist/dfcp $(DESTDIR)$(PREFIX)/bin/dfcp
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 target/packaging/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 target/packaging/dfcp.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/dfcp
	install -D -m 644 target/packaging/_dfcp $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_dfcp
	install -D -m 644 target/packaging/dfcp.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/dfcp.fish
	@[ -n "$(DESTDIR)" ] || ! command -v zsh >/dev/null || zsh -c 'print -l $$fpath' | grep -qxF "$(PREFIX)/share/zsh/site-functions" || \
		echo "zsh finds its completions with this in .zshenv: fpath+=($(PREFIX)/share/zsh/site-functions)"
	@case ":$$PATH:" in *:"$(PREFIX)/bin":*) ;; *) [ -n "$(DESTDIR)" ] || echo "$(PREFIX)/bin is not in PATH" ;; esac

# The program that `install` installs. Without the tables of unwinding, a tenth of it, as the static ones.
ifeq ($(shell uname -s),Linux)
DIST_LINK = -C link-arg=-Wl,--no-eh-frame-hdr -C 'link-arg=-Wl,-T,$(CURDIR)/packaging/no-unwinding.ld'
endif
dist: toolchain
	$(CARGO) rustc --profile dist --locked -p dfcp-cli --bin dfcp -- $(DIST_LINK)

# Programs that need nothing of the machine they run on, for x86-64 and arm64: target/static.
static: toolchain
	./packaging/static

# The Debian package of the static program.
deb: toolchain
	./packaging/deb

test: toolchain lint
	$(CARGO) test --workspace --locked --no-fail-fast

lint: toolchain
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	./scripts/check-core-imports
	./scripts/deny

fmt:
	$(CARGO) fmt --all

# Raw results go to $(OUT); see docs/bench/README.md.
bench: bench-codes bench-loopback bench-sim bench-simulator bench-path bench-published bench-profiles

bench-codes:
	$(CARGO) bench --locked -p dfcp-fec --bench codes -- --json $(CURDIR)/$(OUT)/codes.json
	$(CARGO) bench --locked -p dfcp-fec --bench raptor -- --json $(CURDIR)/$(OUT)/raptor.json

bench-loopback:
	$(CARGO) bench --locked -p dfcp --bench loopback -- --json $(CURDIR)/$(OUT)/loopback.json

bench-sim:
	$(CARGO) run --release --locked -p dfcp-sim --example transfer | tee $(OUT)/simulated.md

# Beside ns-2 and ns-3 where they are installed (Debian: ns2, libns3-dev).
bench-simulator:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli
	./validation/bench-all $(OUT)

bench-path:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli
	./scripts/bench-path $(OUT)

bench-published:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli
	./scripts/bench-published $(OUT)

bench-profiles:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli
	./scripts/bench-profiles $(OUT)

# Beside kernel TCP and other transports, in the lab; scripts/install-peers installs these.
bench-compare:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli -p dfcp-peers
	./scripts/bench-compare $(OUT)

# Every sender alone on each bad path, simulated and in the lab; hours: see the script.
bench-bad-paths:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli -p dfcp-peers
	./scripts/bench-bad-paths $(OUT)

# dfcp proxy beside others, the same traffic; what is not installed is said. See the script; --quick is short.
bench-proxy:
	$(CARGO) build --release --locked -p dfcp-cli -p dfcp-lab-cli
	./scripts/bench-proxy $(OUT)

.PHONY: toolchain
toolchain:
	@CARGO="$(firstword $(CARGO))" ./scripts/toolchain
