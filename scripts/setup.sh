#!/usr/bin/env bash
# Installs the missing tools of a target. Returns quickly if everything is installed.
#   setup.sh demo    Python packages, Prometheus, Java and DynamoDB Local, the IAM simulator, the dashboard page
#   setup.sh test    the above, Alertmanager, SAM, checkov, Chromium, and the tools of `release`
#   setup.sh page    the dashboard page
#   setup.sh build   Python packages, SAM and the dashboard page
#   setup.sh release  Python packages, SAM, the dashboard page, and what lists licenses and components
#   setup.sh mutate  Python packages, Prometheus and mutmut
#   setup.sh forecast  Python packages, and statsmodels for benchmarks.forecast
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-demo}

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

pick_python() {
  for candidate in python3.13 python3 python3.14 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

has_python() { # one that can make an environment
  local python
  python=$(pick_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null
}

has_any() { # has_any COMMAND...: whether one of them is installed
  local command
  for command in "$@"; do if command -v "$command" >/dev/null; then return 0; fi; done
  return 1
}

missing() { # the Debian packages that this target needs and that are missing
  command -v sha256sum >/dev/null || echo coreutils
  case $target in
    page) ;;
    *) [ -x .venv/bin/pip ] || has_python || echo python3 python3-venv ;;
  esac
  case $target in demo | test | mutate)
    command -v prometheus >/dev/null && command -v promtool >/dev/null || echo prometheus
  esac
  case $target in demo | test)
    java -version 2>&1 | grep -qE '"(1[7-9]|[2-9][0-9])' || echo openjdk-17-jre-headless
  esac
  case $target in demo | test | build | release | page)
    command -v npm >/dev/null || echo nodejs npm
  esac
  if [ "$target" = test ]; then
    has_any prometheus-alertmanager alertmanager || echo prometheus-alertmanager
    has_any chromium chromium-browser google-chrome || echo chromium fonts-dejavu-core
  fi
}

system_packages() { # installs them all, or lists all of them, before anything else is done
  local packages as_root=() install="apt-get install -y --no-install-recommends"
  mapfile -t packages < <(missing | tr ' ' '\n')
  if [ ${#packages[@]} -eq 0 ]; then return; fi
  command -v apt-get >/dev/null ||
    fail "these Debian packages, or their equivalents on your system, are missing: ${packages[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these Debian packages are missing, and installing them needs root: ${packages[*]}
setup: have them installed, as root: $install ${packages[*]}
setup: nothing was changed; run this again afterwards."
    as_root=(sudo)
  fi
  say "installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq >&2 || say "apt-get update failed; continuing"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install -qq "${packages[@]}" >/dev/null ||
    fail "could not install ${packages[*]}; try as root: $install ${packages[*]}"
}

sum_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

is_made_from() { # is_made_from STAMP FILE...: whether the stamp's installation was made from exactly these files
  local stamp=$1; shift
  [ "$(cat "$stamp" 2>/dev/null)" = "$(sum_of "$@")" ]
}

# venv FOLDER LOCK [COMMAND...]: install the packages of a lock, then run a command of their uv. Never call it in a
# condition: bash would not stop at a failure in it, and the stamp would mark an incomplete installation.
venv() {
  local folder=$1 lock=$2 python uv; shift 2
  local stamp=$folder/.made-from
  if [ -x "$folder/bin/python" ] && is_made_from "$stamp" "$lock" pyproject.toml .python-version; then return; fi
  rm -f "$stamp"
  if [ ! -x "$folder/bin/pip" ]; then
    python=$(pick_python) || fail "Python 3.11 or newer is needed; there is only $(python3 --version 2>&1)"
    say "$folder takes $("$python" --version) (Lambda runs 3.13)"
    "$python" -m venv "$folder" || fail "$python could not make $folder"
  fi
  uv=.venv/bin/uv
  if [ ! -x "$uv" ]; then
    uv=$folder/bin/uv
    # pip installs the locked version and checks its hashes.
    sed -n '/^uv==/,/[^\\]$/p' requirements/dev.txt > "$folder/uv.txt"
    "$folder/bin/pip" install -q --require-hashes --no-deps -r "$folder/uv.txt" ||
      fail "could not install uv into $folder; is the Python package index reachable?"
  fi
  say "installing the packages of $lock"
  "$uv" pip sync -q --require-hashes --python "$folder/bin/python" "$lock" || fail "could not install the packages of $lock"
  if [ $# -gt 0 ]; then "$folder/bin/uv" "$@"; fi
  sum_of "$lock" pyproject.toml .python-version > "$stamp"
}

modules() { # modules FOLDER NAME: install the packages of a folder's package-lock.json, like `venv`
  local folder=$1 name=$2
  local stamp=$folder/node_modules/.made-from
  if is_made_from "$stamp" "$folder/package-lock.json"; then return; fi
  node -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 18 || (+a === 18 && +b >= 18) ? 0 : 1)' ||
    fail "Node $(node --version) is too old for $name: install 18.18 or newer (Debian 12 has 18.20)"
  say "installing $name"
  npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$folder" >&2 ||
    fail "could not install $name; is the npm registry reachable?"
  sum_of "$folder/package-lock.json" > "$stamp"
}

page() { # the dashboard page, from web/ into functions/api/page
  local stamp=functions/api/page/.made-from sources
  mapfile -t sources < <(find web -path web/node_modules -prune -o -type f -print | LC_ALL=C sort)
  modules web "the tools that build the dashboard page"
  if is_made_from "$stamp" "${sources[@]}"; then return; fi
  say "building the dashboard page"
  npm --prefix web run --silent build >&2 || fail "could not build the dashboard page"
  sum_of "${sources[@]}" > "$stamp"
}

system_packages
if [ "$target" = page ]; then page; exit; fi
venv .venv requirements/dev.txt pip install -q --no-deps --no-build-isolation --python .venv/bin/python -e .

case $target in build | release | test)
  venv .tools/sam requirements/sam.txt
  modules authoring/bytecode "the compiler of the layers' bytecode"
esac
case $target in mutate | forecast) venv ".tools/$target" "requirements/$target.txt" ;; esac
case $target in release | test) venv .tools/release requirements/release.txt ;; esac
case $target in test)
  venv .tools/checkov requirements/checkov.txt
  modules lint/workflows "the linter of the workflows"
  ;;
esac
case $target in demo | test)
  modules gpucost_devstack/dynamodb "Amazon's DynamoDB Local"
  modules gpucost_devstack/iam "the IAM policy simulator"
esac
case $target in demo | build | release | test) page ;; esac
