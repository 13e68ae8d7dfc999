#!/usr/bin/env bash
# Renews web/package-lock.json, without the addresses that its packages came from.
set -euo pipefail
cd "$(dirname "$0")/../web"
rm -f package-lock.json
npm install --package-lock-only --silent --ignore-scripts --no-audit --no-fund
node -e '
  const fs = require("node:fs"), lock = JSON.parse(fs.readFileSync("package-lock.json"));
  for (const one of Object.values(lock.packages)) { delete one.resolved; delete one.funding; }
  fs.writeFileSync("package-lock.json", JSON.stringify(lock, null, 2) + "\n");
'
