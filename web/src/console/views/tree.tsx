// A JSON value as a tree. Parts are made when they are opened.

import { useMemo, useState } from "preact/hooks";
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
        {brief(JSON.stringify(typeof value === "string" ? value.slice(0, longest) : value))}
      </span>
    );
  }
  return <Branch value={value} label={label} depth={depth} />;
}

interface BranchProps {
  value: object;
  label: preact.ComponentChildren;
  depth: number;
}

function Branch({ value, label, depth }: BranchProps) {
  const [shown, setShown] = useState(page);
  const list = Array.isArray(value);
  const keys = useMemo(() => Object.keys(list ? value.slice(0, shown) : value), [value, shown]);
  const length = list ? value.length : keys.length;
  const [open, setOpen] = useState(depth < openDepth && length <= openLength);
  const brackets = list ? `[${length}]` : `{${length}}`;
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        <span class="muted">{brackets}</span>
      </summary>
      {open && (
        <ul>
          {keys.slice(0, shown).map((key) => (
            <li key={key}>
              <Tree value={(value as Record<string, unknown>)[key]} name={key} depth={depth + 1} />
            </li>
          ))}
          {length > shown && (
            <li>
              <Button small look="plain" onClick={() => setShown(shown + page)}>
                {words.call.more(length - shown)}
              </Button>
            </li>
          )}
        </ul>
      )}
    </details>
  );
}
