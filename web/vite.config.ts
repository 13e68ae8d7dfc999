import license from "rollup-plugin-license";
import { defineConfig } from "vitest/config";

const page = "../functions/api/page";

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  plugins: [
    license({
      thirdParty: {
        multipleVersions: true,
        // what the page bundles, for THIRD_PARTY_NOTICES (make notices)
        output: {
          file: `${page}/licenses.json`,
          template: (packages) =>
            JSON.stringify(
              packages
                .map(({ name, version, license, licenseText, noticeText }) => ({ name, version, license, licenseText, noticeText }))
                .sort((a, b) => (`${a.name}` < `${b.name}` ? -1 : 1)),
            ),
        },
      },
    }),
  ],
  build: {
    outDir: page,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // a data: address is no file of ours, and the page's policy refuses it
    modulePreload: { polyfill: false },
  },
  test: { include: ["tests/**/*.test.ts"], pool: "threads", css: true },
});
