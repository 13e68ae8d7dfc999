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
        <HatchSwatch /> missing or unmeasured
      </span>
      {children}
    </p>
  );
}

/** Legend symbol of cells whose color depends on the color scheme: unallocated GPUs, or nothing. */
export function CellSwatch({ kind }: { kind: "free" | "nothing" }) {
  return (
    <svg class={`swatch ${kind}`} viewBox="0 0 10 10" aria-hidden="true">
      <rect x="0.5" y="0.5" width="9" height="9" />
    </svg>
  );
}
