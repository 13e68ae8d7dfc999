// Legend of colors and hatching.

import type { ComponentChildren } from "preact";
import { useAppearance } from "../hooks";
import { HatchSwatch } from "../parts";

export function Scale({ kind = "utilization", children }: { kind?: string; children?: ComponentChildren }) {
  const isDark = useAppearance().startsWith("dark");
  return (
    <p class="scale">
      0%
      <span class="use" />
      <span>
        100% {kind}: the {isDark ? "brighter" : "darker"}, the more
      </span>
      <span>
        <HatchSwatch isUnmeasured /> unmeasured
      </span>
      <span>
        <HatchSwatch /> missing
      </span>
      {children}
    </p>
  );
}

/** Legend symbol of cells in which there is nothing. */
export function NothingSwatch() {
  return (
    <svg class="swatch nothing" viewBox="0 0 10 10" aria-hidden="true">
      <rect x="0.5" y="0.5" width="9" height="9" />
    </svg>
  );
}
