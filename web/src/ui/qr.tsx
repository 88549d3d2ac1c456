import { generate } from "lean-qr";
import { useMemo } from "preact/hooks";
import "./qr.css";

const quiet = 4; // modules around the code, which scanners need

/** A QR code. It is dark on light in both themes: not all scanners read the reverse. */
export function QR({ text, label }: { text: string; label: string }) {
  const { size, dark } = useMemo(() => draw(text), [text]);
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`0 0 ${size} ${size}`} shape-rendering="crispEdges">
      <path d={dark} />
    </svg>
  );
}

function draw(text: string): { size: number; dark: string } {
  const code = generate(text);
  let dark = "";
  for (let y = 0; y < code.size; y++) {
    for (let x = 0; x < code.size; x++) if (code.get(x, y)) dark += `M${x + quiet} ${y + quiet}h1v1h-1z`;
  }
  return { size: code.size + 2 * quiet, dark };
}
