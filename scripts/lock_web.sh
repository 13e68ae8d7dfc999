#!/bin/sh
# Renews the locks of web/, authoring/bytecode/ and lint/workflows/, without the addresses that their packages came from.
set -eu
cd "$(dirname "$0")/.."
repository=$PWD
for folder in web authoring/bytecode lint/workflows; do
  cd "$repository/$folder"
  rm -f package-lock.json
  npm install --package-lock-only --silent --ignore-scripts --no-audit --no-fund
  node --input-type=commonjs -e '
    const fs = require("node:fs"), lock = JSON.parse(fs.readFileSync("package-lock.json"));
    for (const entry of Object.values(lock.packages)) { delete entry.resolved; delete entry.funding; }
    fs.writeFileSync("package-lock.json", JSON.stringify(lock, null, 2) + "\n");
  '
done
