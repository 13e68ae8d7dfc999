// Legend of colors and hatching.

import type { ComponentChildren } from "preact";
import { HatchSwatch } from "../parts";
import { useColor } from "./colors";

export function Scale({ kind = "utilization", children }: { kind?: string; children?: ComponentChildren }) {
  const steps = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
  return (
    <p class="scale">
      0%
      <svg viewBox={`0 0 ${steps.length} 1`} preserveAspectRatio="none" aria-hidden="true">
        {steps.map((step, index) => (
          <rect key={step} x={index} width="1.02" height="1" fill={useColor(step)} />
        ))}
      </svg>
      <span>100% {kind}</span>
      <span>
        <HatchSwatch /> missing or unmeasured
      </span>
      {children}
    </p>
  );
}
