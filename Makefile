# Packagers: `make install` and `make installcheck` work against the server that PG_CONFIG names and honour DESTDIR;
# SITE_PACKAGES names the folder of the Python packages that the server will use. Everybody else: `make help`.

EXTENSION = cerebro
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" cerebro.control)
ifndef PG_CONFIG
PG_CONFIG := $(shell bash -c '. tools/common.sh && find_pg_config')
endif
PGXS := $(if $(PG_CONFIG),$(shell $(PG_CONFIG) --pgxs))
RELEASED := $(shell sed -n 's/^version \([^ ]*\) .*/\1/p' migrations/released.txt)

VENV = .local/venv
SITE_PACKAGES ?= $(realpath $(wildcard $(VENV)/lib/python3*/site-packages))
PYTHON_DIR = $(datadir)/cerebro/$(EXTVERSION)/python

DATA_built = build/cerebro_madlib.control build/cerebro--$(EXTVERSION).sql build/cerebro_madlib--$(EXTVERSION).sql \
	$(foreach old,$(filter-out $(EXTVERSION),$(RELEASED)),$(foreach name,cerebro cerebro_madlib,build/$(name)--$(old)--$(EXTVERSION).sql))
REGRESS = smoke
REGRESS_OPTS = --inputdir=tests/installcheck --outputdir=build/installcheck

# From which pg_upgrade is tried on a Debian 13: Debian 12 has it.
OLD_SERVER = 15

# What a machine without PyTorch, GPU and Greenplum can test.
HERE = not torch and not gpu and not greenplum
PYTEST = $(VENV)/bin/pytest --timeout=300 -m "not slow and not alone and $(HERE)"

.DEFAULT_GOAL := help
.PHONY: help setup up down psql env demo test test-all test-chosen test-quick test-short test-debian test-version test-upgrade test-versions test-docker test-citus test-greenplum madlib-suites faults bench bench-plan bench-quick docker lint format typecheck lock reference doors shape freeze deploy install-own dist build client clean-local install-python uninstall-python

help: ## list what can be made
	@sed -n 's/^\(# \)\?\([a-z-]*\):.*## \(.*\)/\2\t\3/p' Makefile | expand -t 14

demo: ## from nothing to a leaderboard of sixteen nets
	@tools/setup demo
	@$(MAKE) -s deploy
	@tools/cluster up
	@eval "$$(tools/cluster env)" && tools/demo.sh

# Files go to workers whole and in the order of tests/conftest.py, since the tests of one share what they have made.
# Much of their time is waiting.
SERVED = tests/contract tests/db tests/faults tests/client
WHOLE_FILES = --dist loadfile --no-loadscope-reorder
TOGETHER = -n $(or $(WORKERS),3) $(WHOLE_FILES)

test: ## set up what is missing, install, run the tests; ARGS='-k word' chooses among them
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up-for-tests
	@$(MAKE) -s client
	@eval "$$(tools/cluster env)" && $(PYTEST) $(TOGETHER) $(SERVED) $(ARGS)
	@$(PYTEST) $(TOGETHER) tests/unit $(ARGS)
	@eval "$$(tools/cluster env)" && $(VENV)/bin/pytest --timeout=300 -m "alone and $(HERE)" tests/db $(ARGS)

SLOW = $(VENV)/bin/pytest --timeout=900 -m "slow and not docker and $(HERE)" $(TOGETHER)

test-all: test ## all tests: besides, each layer and net on each engine, attacks, dumps, updates, all pages of docs
	@eval "$$(tools/cluster env)" && $(SLOW) tests/contract tests/db tests/faults tests/client $(ARGS)
	@$(SLOW) tests/unit $(ARGS)

# What continuous integration adds to `make test`, the same on every day: attacks, dumps, rights, updates, settings.
CHOSEN = tests/contract/test_attacks_sessions.py tests/contract/test_dump.py tests/contract/test_rights.py \
	tests/contract/test_update.py tests/db/test_session_settings.py

test-chosen: ## what continuous integration runs of the rest
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up-for-tests
	@$(MAKE) -s client
	@eval "$$(tools/cluster env)" && $(SLOW) $(CHOSEN) $(ARGS)

test-quick: ## the tests that need no server
	@tools/setup dev
	@$(VENV)/bin/pytest --timeout=60 -m "not slow and $(HERE)" tests/unit $(ARGS)

# Who may do what, what comes out, and to which bits: what another version of the server could change.
SHORT = tests/contract/test_attacks_sessions.py tests/contract/test_catalog.py tests/contract/test_privileges.py \
	tests/db/test_fit.py tests/db/test_invariants.py tests/db/test_predict.py tests/db/test_cancel.py

test-short: ## the tests of what another version of PostgreSQL or Python could change
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up
	@eval "$$(tools/cluster env)" && $(PYTEST) $(SHORT) $(ARGS)

test-debian: ## the demo and a short tier on a Debian 13 that has nothing yet, with PostgreSQL 17 (needs root)
	@tools/setup debian-root
	@tools/debian-root trixie sh -c 'make demo && make test-short'

# installcheck, all of the database tier, and updates, dumps and restores.
test-version:
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up
	@$(MAKE) -s client
	@eval "$$(tools/cluster env)" && $(MAKE) -s installcheck
	@eval "$$(tools/cluster env)" && $(PYTEST) $(TOGETHER) tests/contract tests/db tests/faults
	@eval "$$(tools/cluster env)" && $(SLOW) \
		tests/contract/test_docs.py tests/contract/test_update.py tests/contract/test_dump.py

# The extension's SQL names its Python by a path, so the old server finds the same, and packages by another one.
test-upgrade:
	@tools/setup dev
	@tools/setup old-server
	@$(MAKE) -s deploy
	@bash -c '. tools/common.sh && cd /usr/share/postgresql/$(OLD_SERVER)/extension \
		&& cp "$$($$(own_pg_config) --sharedir)"/extension/cerebro* . \
		&& sed -i "s,/venv/lib/python3[0-9.]*/site-packages,/old-packages," cerebro--*.sql'
	@tools/cluster up
	@eval "$$(tools/cluster env)" && CEREBRO_TEST_OLD_SERVER=/usr/lib/postgresql/$(OLD_SERVER)/bin \
		$(VENV)/bin/pytest --timeout=900 -m "$(HERE)" tests/contract/test_update.py

test-versions: ## the database tests on Debian 13 and on Debian unstable, and pg_upgrade from 15 to 17 (needs root)
	@tools/setup debian-root
	@tools/debian-root trixie make test-version
	@tools/debian-root trixie make test-upgrade
	@tools/debian-root sid make test-version

test-docker: ## the tests of the container image, where a Docker engine answers
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up
	@eval "$$(tools/cluster env)" && $(VENV)/bin/pytest --timeout=600 -m docker tests/docker $(ARGS)

test-greenplum: ## the common tests and Greenplum's own, on the cluster that PGHOST and the like name; ARGS='-k word' chooses
	@case "$$(psql -X -Atc "SELECT current_setting('gp_role', true) IS NOT NULL" $(or $(PGDATABASE),postgres) 2>&1)" in \
	t) $(VENV)/bin/pytest --timeout=900 -n $(or $(WORKERS),2) $(WHOLE_FILES) \
		-m "not slow and not alone and not torch and not gpu" tests/db \
		tests/contract/test_privileges.py tests/contract/test_catalog.py \
		tests/client/test_registry.py tests/client/test_saved.py tests/client/test_brought.py \
		tests/client/test_models.py $(ARGS) && \
		$(VENV)/bin/pytest --timeout=900 -m "not slow and not torch and not gpu" tests/greenplum $(ARGS) && \
		$(VENV)/bin/pytest --timeout=300 -m "alone and not torch and not gpu" tests/db $(ARGS) && \
		$(VENV)/bin/pytest --timeout=900 tests/contract/test_rights.py tests/contract/test_rights_rows.py $(ARGS) ;; \
	*) echo 'cerebro: skipped: no Greenplum cluster answers; name one by PGHOST, PGPORT and PGUSER' ;; \
	esac

test-citus: ## Citus' own tests, on a cluster of four nodes in .local; the server that PG_CONFIG names must have Citus
	@tools/setup dev
	@tools/citus up
	@$(MAKE) -s deploy
	@eval "$$(tools/citus env)" && $(VENV)/bin/pytest --timeout=300 tests/citus $(ARGS); status=$$?; tools/citus down; exit $$status

madlib-suites: ## run the SQL tests of MADlib's deep-learning module; MADLIB=/src/madlib is a checkout of MADlib
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up-for-tests
	@eval "$$(tools/cluster env)" && $(VENV)/bin/python tools/madlib_suites.py $(ARGS) $(MADLIB)

faults: ## hurt runs at random and resume them (ROUNDS=200), then run and cancel (RUNS=500) and look for growth
	@tools/setup dev
	@$(MAKE) -s deploy
	@$(VENV)/bin/python tests/faults/harness.py --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED))
	@$(VENV)/bin/python tests/faults/soak.py --runs $(or $(RUNS),500) $(if $(SEED),--seed $(SEED))

bench: ## measure everything against its peers and write docs/performance.md
	@tools/setup runtime && bench/setup
	@$(MAKE) -s deploy
	@tools/cluster up
	@eval "$$(tools/cluster env)" && $(VENV)-bench/bin/python bench/run.py $(ARGS)

bench-plan: ## compare plans with what the runs took; ARGS='--only digits wide' chooses
	@tools/setup dev
	@$(MAKE) -s deploy
	@tools/cluster up
	@eval "$$(tools/cluster env)" && $(VENV)/bin/python bench/plans.py $(ARGS)

bench-quick: ## some of the same, with fewer rows and one repetition, in under five minutes
	@$(MAKE) -s bench ARGS='--quick $(ARGS)'

docker: ## build the container image cerebro-db (BASE=image, PACKAGES=requirements/gpu.lock for GPUs)
	@docker build -q -f docker/Dockerfile -t cerebro-db --label org.opencontainers.image.version=$(EXTVERSION) \
		$(if $(BASE),--build-arg BASE=$(BASE)) $(if $(PACKAGES),--build-arg PACKAGES=$(PACKAGES)) .

up: ## start the private cluster, where CREATE EXTENSION cerebro works
	@tools/setup runtime
	@$(MAKE) -s deploy
	@tools/cluster up

down: ## stop the private cluster
	@tools/cluster down

psql: ## talk to the private cluster
	@eval "$$(tools/cluster env)" && exec psql

env: ## print the private cluster's connection settings for a shell
	@tools/cluster env

# A procedure that ends transactions can have no search_path of its own, and what the planner sees through has none.
PGSPOT = --ignore-lang=plpython3u \
	--proc-without-search-path='cerebro._fetch_rows(query text,row_type anyelement)' \
	--proc-without-search-path='cerebro._command(command text,request text,INOUT answer text)' \
	--proc-without-search-path='cerebro.run_schedule(name text,alias text)' \
	--proc-without-search-path='cerebro.predict(model regclass,row anyelement,mst_key integer,OUT class text,OUT probability double precision,OUT prediction double precision,OUT probabilities jsonb)' \
	--proc-without-search-path='cerebro.predict(model text,row anyelement,mst_key integer,OUT class text,OUT probability double precision,OUT prediction double precision,OUT probabilities jsonb)' \
	--proc-without-search-path='cerebro.explain_predict(model text,row anyelement,top integer,mst_key integer,OUT class text,OUT probability double precision,OUT prediction double precision,OUT score double precision,OUT baseline double precision,OUT column_name text,OUT value text,OUT contribution double precision,OUT approximation_error double precision,OUT map bytea)' \
	--proc-without-search-path='cerebro.predict_related(model text,query text,source jsonb,class text,probability double precision,prediction double precision)' \
	--proc-without-search-path='cerebro.predict_query(model regclass,query text,row_type anyelement,mst_key integer,source anyelement,class text,probability double precision,prediction double precision)' \
	--proc-without-search-path='cerebro.predict_query(model text,query text,row_type anyelement,mst_key integer,source anyelement,class text,probability double precision,prediction double precision)'

lint: ## look for slips in Python and SQL
	@tools/setup dev
	@$(MAKE) -s build
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/pgspot $(PGSPOT) build/cerebro--$(EXTVERSION).sql build/cerebro_madlib--*.sql
	@for update in build/cerebro--*--*.sql; do \
		$(VENV)/bin/pgspot $(PGSPOT) -a sql/head.sql $$update || exit; \
	done # behind the head: what an update makes stands in the schema that an install has made

format: ## bring the Python code into shape
	@tools/setup dev
	@$(VENV)/bin/ruff check --fix
	@$(VENV)/bin/ruff format

typecheck: ## check the types
	@tools/setup dev
	@$(VENV)/bin/basedpyright

lock: ## renew the lock files from the groups of pyproject.toml (needs uv)
	@for group in server gpu hub page demo dev bench features; do \
		lock=requirements/$$group.lock like='-c requirements.lock'; \
		case $$group in server) lock=requirements.lock like= ;; gpu | features) like= ;; esac; \
		uv pip compile -q --upgrade --universal --fork-strategy=fewest --python-version=3.11 --generate-hashes \
			--no-header --no-emit-index-url --group $$group $$like -o $$lock || exit; \
	done

reference: ## write docs/reference.md from the SQL files
	@python3 tools/build_reference.py

doors: ## write docs/doors.md from the tests
	@python3 tools/build_doors.py

shape: ## count what makes the code hard to follow; ARGS='FOLDER ...' for other trees
	@python3 tools/shape.py $(ARGS)

freeze: ## record this version's migrations as released
	@python3 tools/build_sql.py --freeze

# The archive is of what is committed. META.json is the one file that it has and the repository has not.
dist: build ## the client's wheel, and build/cerebro-VERSION.zip, the archive for PGXN
	@tools/setup dev
	@rm -f build/*.whl
	@$(VENV)/bin/python -m build --wheel --no-isolation --outdir build . >/dev/null
	@echo build/*.whl
	@git archive --format=zip --prefix=cerebro-$(EXTVERSION)/ --add-file=build/META.json \
		-o build/cerebro-$(EXTVERSION).zip HEAD
	@echo build/cerebro-$(EXTVERSION).zip

# Into the private cluster's own copy of the server; without PGXS, which comes with the server's headers.
deploy:
	@tools/cluster copy
	@$(MAKE) -s install-own datadir="$$(bash -c '. tools/common.sh && $$(own_pg_config) --sharedir')"

install-own: build install-python
	@install -m 644 cerebro.control $(DATA_built) '$(datadir)/extension'

ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
# install: ## put the extension into the server that PG_CONFIG names
install: install-python
uninstall: uninstall-python
installcheck: build/installcheck
endif

# In a folder of its own, as users have it: the root must not be on Python's path, where its folder plpy would
# stand for the server's module.
client: ## build the Python client and put it where the tests look for it
	@tools/setup dev
	@$(VENV)/bin/python -m pip install -qq --no-deps --no-build-isolation --upgrade --target=.local/client .

# Always run, since the paths of this call go into the files; it writes only what changes.
build:
	@python3 tools/build_sql.py --out=build --python-dir='$(PYTHON_DIR)' --site-packages='$(SITE_PACKAGES)'

$(DATA_built): build ;

build/installcheck:
	@mkdir -p $@

# Compiled here, since the server's user may write nothing there and would compile all of it in each session.
install-python:
	@test -n '$(SITE_PACKAGES)' || { echo 'cerebro: no Python packages in $(VENV): run `make up` first, or say SITE_PACKAGES=folder' >&2; exit 1; }
	@umask 022 && new='$(DESTDIR)$(PYTHON_DIR).new' && rm -rf "$$new" && mkdir -p "$$new" \
		&& (cd plpy && find cerebro_plpy -name '*.py' -exec cp --parents -t "$$new" {} +) \
		&& cp requirements.lock "$$new" \
		&& $(or $(wildcard $(VENV)/bin/python),python3) -m compileall -qq --invalidation-mode checked-hash -s "$$new" -p '$(PYTHON_DIR)' "$$new" \
		&& chmod -R u=rwX,go=rX "$$new" \
		&& rm -rf '$(DESTDIR)$(PYTHON_DIR)' && mv "$$new" '$(DESTDIR)$(PYTHON_DIR)'

uninstall-python:
	rm -rf '$(DESTDIR)$(PYTHON_DIR)'
	-rmdir -p --ignore-fail-on-non-empty '$(DESTDIR)$(dir $(PYTHON_DIR))'

clean: clean-local ## stop and remove the private cluster, and all that was built
clean-local:
	@tools/cluster remove
	@rm -rf build .pytest_cache .ruff_cache .hypothesis
