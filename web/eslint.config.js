import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(tseslint.configs.strictTypeChecked, {
  languageOptions: { parserOptions: { projectService: true } },
  rules: {
    "no-restricted-properties": [
      "error",
      { property: "innerHTML", message: "names are text: let Preact write them" },
      { property: "outerHTML", message: "names are text: let Preact write them" },
      { property: "insertAdjacentHTML", message: "names are text: let Preact write them" },
    ],
    "no-restricted-syntax": [
      "error",
      { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "names are text" },
    ],
    "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
  },
});
