#!/bin/sh
# Installs the missing tools of a target. Returns quickly if everything is installed. It runs on Debian, Fedora and macOS
# with any POSIX shell that has `local`, such as dash and bash 3.2.
#   setup.sh unit    Python packages
#   setup.sh demo    Python packages, Prometheus, Java and DynamoDB Local, the IAM simulator, the dashboard page
#   setup.sh test    the above, Alertmanager, SAM, checkov, Chromium, and the tools of `release`
#   setup.sh page    the dashboard page
#   setup.sh build   Python packages, SAM and the dashboard page
#   setup.sh release  Python packages, SAM, the dashboard page, and what lists licenses and components
#   setup.sh mutate  Python packages, Prometheus and mutmut
#   setup.sh forecast  Python packages, and statsmodels for benchmarks.forecast
set -eu
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

has_java() { # 17 or newer, where gpucost_devstack looks for it; Homebrew's is not on the PATH
  local java
  for java in "${JAVA_HOME:-/nonexistent}/bin/java" java "${HOMEBREW_PREFIX:-/opt/homebrew}/opt/openjdk/bin/java" \
    /usr/local/opt/openjdk/bin/java; do
    if "$java" -version 2>&1 | grep -qE '"(1[7-9]|[2-9][0-9])'; then return 0; fi
  done
  return 1
}

first_of() { # first_of COMMAND...: the first that is installed
  local command
  for command in "$@"; do if command -v "$command" >/dev/null; then echo "$command"; return; fi; done
  return 1
}

missing() { # the programs that this target needs and that are missing
  case $target in
    page) ;;
    *) [ -x .venv/bin/pip ] || has_python || echo python ;;
  esac
  case $target in demo | test | mutate)
    { command -v prometheus && command -v promtool; } >/dev/null || echo prometheus
  esac
  case $target in demo | test) has_java || echo java ;; esac
  case $target in demo | test | build | release | page) command -v npm >/dev/null || echo npm ;; esac
  if [ "$target" = test ]; then
    first_of prometheus-alertmanager alertmanager >/dev/null || echo alertmanager
    first_of chromium-headless-shell chromium chromium-browser google-chrome \
      "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" >/dev/null || echo chromium
  fi
}

packages() { # packages MANAGER PROGRAM...: the packages of programs, a line each; `-` for a program without a package
  local manager="$1" program; shift
  for program in "$@"; do
    awk -v manager="$manager" -v program="$program" '
      $1 == "program" { for (i = 2; i <= NF; i++) if ($i == manager) column = i }
      $1 == program { gsub(",", " ", $column); print $column }' gpucost_devstack/packages.txt
  done
}

packaged() { packages "$@" | grep -vx -e - | paste -sd ' ' -; }

unpackaged() { # unpackaged MANAGER PROGRAM...: those of the programs that have no package
  local manager="$1" program; shift
  for program in "$@"; do if [ "$(packages "$manager" "$program")" = - ]; then echo "$program"; fi; done | paste -sd ' ' -
}

how_to_install() { # how_to_install MANAGER PROGRAM...
  local names downloads
  names=$(packaged "$@")
  downloads=$(unpackaged "$@")
  echo "${names:+$1 install $names}${downloads:+${names:+, and }download $downloads from https://prometheus.io/download/}"
}

system_packages() { # installs the packages of all missing programs, or lists them, before anything else is done
  local manager install names downloads as_root=
  # shellcheck disable=SC2046 # a word for each program
  set -- $(missing)
  if [ $# -eq 0 ]; then return; fi
  manager=$(first_of apt-get dnf brew) || fail "these programs are missing: $*. Install them. Debian and Ubuntu:\
 $(how_to_install apt-get "$@"); macOS: $(how_to_install brew "$@"); Fedora: $(how_to_install dnf "$@")"
  names=$(packaged "$manager" "$@")
  downloads=$(unpackaged "$manager" "$@")
  case $manager in
    apt-get) install="apt-get install -y --no-install-recommends" ;;
    dnf) install="dnf install -y" ;;
    brew) install="brew install" ;;
  esac
  if [ -n "$downloads" ]; then
    say "$manager has no package of $downloads: download from https://prometheus.io/download/ into a folder on your PATH"
  fi
  if [ -n "$names" ]; then
    if [ "$manager" != brew ] && [ "$(id -u)" -ne 0 ]; then
      command -v sudo >/dev/null || fail "these packages are missing, and installing them needs root: $names
setup: have them installed, as root: $install $names
setup: nothing was changed; run this again afterwards."
      as_root=sudo
    fi
    say "installing $names"
    if [ "$manager" = apt-get ]; then
      $as_root apt-get update -qq >&2 || say "apt-get update failed; continuing"
      as_root="$as_root env DEBIAN_FRONTEND=noninteractive"
    fi
    # shellcheck disable=SC2086 # words
    $as_root $install -q $names >/dev/null || fail "could not install $names; try${as_root:+ as root}: $install $names"
  fi
  if [ -n "$downloads" ]; then exit 1; fi
}

# macOS has shasum instead of sha256sum.
sum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1; }

sum_of() { cat "$@" | sum; }

has_stamp() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; } # has_stamp STAMP SUM: whether it was made from these files

# venv FOLDER LOCK [COMMAND...]: install the packages of a lock, then run a command of their uv. Never call it in a
# condition: the shell would not stop at a failure in it, and the stamp would mark an incomplete installation.
venv() {
  local folder="$1" lock="$2" stamp="$1/.made-from" python uv; shift 2
  if [ -x "$folder/bin/python" ] && has_stamp "$stamp" "$(sum_of "$lock" pyproject.toml .python-version)"; then return; fi
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
  local folder="$1" name="$2" stamp="$1/node_modules/.made-from"
  if has_stamp "$stamp" "$(sum_of "$folder/package-lock.json")"; then return; fi
  node -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 18 || (+a === 18 && +b >= 18) ? 0 : 1)' ||
    fail "Node $(node --version) is too old for $name: install 18.18 or newer (Debian 12 has 18.20)"
  say "installing $name"
  npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$folder" >&2 ||
    fail "could not install $name; is the npm registry reachable?"
  sum_of "$folder/package-lock.json" > "$stamp"
}

page_sum() {
  find web docs/reference/openapi.json -path web/node_modules -prune -o -type f ! -name api-types.ts -print |
    LC_ALL=C sort | tr '\n' '\000' | xargs -0 cat | sum
}

page() { # the dashboard page, from web/ into functions/api/page
  local stamp=functions/api/page/.made-from
  modules web "the tools that build the dashboard page"
  if has_stamp "$stamp" "$(page_sum)"; then return; fi
  say "building the dashboard page"
  npm --prefix web run --silent build >&2 || fail "could not build the dashboard page"
  page_sum > "$stamp"
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
