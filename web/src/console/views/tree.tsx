// A JSON value as a tree. Parts are made when they are opened.

import { useState } from "preact/hooks";
import { Button } from "../../ui/parts";
import { words } from "../../words/en";

const openDepth = 2;
const openLength = 30;
const page = 100;
const longest = 10_000; // characters of one text

const brief = (text: string) => (text.length > longest ? text.slice(0, longest) + "…" : text);

interface TreeProps {
  value: unknown;
  name?: string;
  depth?: number;
}

export function Tree({ value, name, depth = 0 }: TreeProps) {
  const label = name !== undefined && <span class="name">{brief(name)}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <span class="text">
        {label}
        {brief(JSON.stringify(value))}
      </span>
    );
  }
  return <Branch value={value as Record<string, unknown>} label={label} depth={depth} />;
}

interface BranchProps {
  value: Record<string, unknown> | unknown[];
  label: preact.ComponentChildren;
  depth: number;
}

function Branch({ value, label, depth }: BranchProps) {
  const entries = Object.entries(value);
  const [open, setOpen] = useState(depth < openDepth && entries.length <= openLength);
  const [shown, setShown] = useState(page);
  const list = Array.isArray(value);
  const brackets = list ? `[${entries.length}]` : `{${entries.length}}`;
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        <span class="muted">{brackets}</span>
      </summary>
      {open && (
        <ul>
          {entries.slice(0, shown).map(([key, child]) => (
            <li key={key}>
              <Tree value={child} name={key} depth={depth + 1} />
            </li>
          ))}
          {entries.length > shown && (
            <li>
              <Button small look="plain" onClick={() => setShown(shown + page)}>
                {words.call.more(entries.length - shown)}
              </Button>
            </li>
          )}
        </ul>
      )}
    </details>
  );
}
