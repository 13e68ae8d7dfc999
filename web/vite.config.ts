import license from "rollup-plugin-license";
import { defineConfig } from "vitest/config";

const page = "../functions/api/page";

const licenses = license({
  thirdParty: {
    multipleVersions: true,
    output: {
      file: `${page}/licenses.json`, // what the page bundles, for THIRD_PARTY_NOTICES (make notices)
      template: (packages) =>
        JSON.stringify(
          packages
            .map(({ name, version, license, licenseText, noticeText }) => ({
              name,
              version,
              license,
              licenseText,
              noticeText,
            }))
            .sort((a, b) => (`${a.name}` < `${b.name}` ? -1 : 1)),
        ),
    },
  },
});

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: page,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // a data: address is no file of ours, and the page's policy refuses it
    modulePreload: { polyfill: false },
    rollupOptions: { plugins: [licenses] },
  },
  server: { fs: { allow: [".", "../docs/reference"] } }, // tests read the glossary
  test: { include: ["tests/**/*.test.ts"], pool: "threads", css: true },
});
