import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "../functions/api/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // a data: address is no file of ours, and the page's policy refuses it
    modulePreload: { polyfill: false },
  },
  test: { include: ["tests/**/*.test.ts"], pool: "threads", css: true },
});
