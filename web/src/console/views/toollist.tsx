import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import type { Tool, ToolEffects } from "../../api/types";
import { Badge, Button, Empty, Panel } from "../../ui/parts";
import { words } from "../../words/en";
import { to } from "../query";
import { duration } from "./bits";

const text = words.device;
const filterFrom = 8; // tools, with which a list gets a filter
const page = 200; // tools that are shown at once: a device may have thousands

interface ToolListProps {
  session?: { session_id: string };
  tools: Tool[];
  away?: boolean;
}

export function ToolList({ session, tools, away }: ToolListProps) {
  const [search, setSearch] = useState("");
  const [shown, setShown] = useState(page);
  const term = search.trim().toLowerCase();
  const found = tools.filter((tool) => (tool.name + "\n" + tool.description).toLowerCase().includes(term));
  const filter = tools.length >= filterFrom && (
    <input
      class="input tool-filter"
      type="search"
      placeholder={text.filter}
      aria-label={text.filter}
      value={search}
      onInput={(event) => setSearch(event.currentTarget.value)}
    />
  );
  return (
    <Panel title={`${text.tools} (${tools.length})`} actions={filter} flush>
      {tools.length === 0 && (
        <Empty title={text.noTools.title}>
          <p class="muted">{away ? text.awayTools : text.noTools.text}</p>
        </Empty>
      )}
      <ul class="tool-list">
        {found.slice(0, shown).map((tool) => (
          <li key={tool.name}>
            <Link class="tool-row" href={to.tool(session?.session_id, tool.name)}>
              <span class="tool-name">
                <span class="mono cut">{tool.name}</span>
                <ToolMarks tool={tool} />
              </span>
              <span class="muted tool-text">{tool.description}</span>
            </Link>
          </li>
        ))}
        {found.length > shown && (
          <li>
            <Button small look="plain" onClick={() => setShown(shown + page)}>
              {words.call.more(found.length - shown)}
            </Button>
          </li>
        )}
      </ul>
    </Panel>
  );
}

/** What a caller should know of a tool before a call. */
export function ToolMarks({ tool }: { tool: Tool }) {
  const hints = tool.annotations ?? {};
  return (
    <span class="badges">
      {tool.approval === "required" && <Badge tone="warn">{text.needsApproval}</Badge>}
      {tool.security_level === "admin_only" && <Badge tone="warn">{text.adminOnly}</Badge>}
      {hints.destructiveHint && <Badge tone="bad">{text.destructive}</Badge>}
      {tool.effects && <Effects effects={tool.effects} />}
      {hints.readOnlyHint && tool.effects?.class !== "read" && <Badge>{text.readOnly}</Badge>}
      {!tool.enabled && (
        <Badge tone="bad" title={tool.reason ?? ""}>
          {text.disabled}
        </Badge>
      )}
    </span>
  );
}

/** What a tool declares that its calls do. */
export function Effects({ effects }: { effects: ToolEffects }) {
  const { class: kind, cost, needs_foreground: foreground, permission, typical_ms: typical } = effects;
  const acts = kind === "external" || kind === "people";
  return (
    <>
      {kind && <Badge tone={acts ? "warn" : ""}>{text.effects[kind]}</Badge>}
      {cost && cost !== "free" && <Badge tone={cost === "high" ? "warn" : ""}>{text.effects[cost]}</Badge>}
      {foreground && <Badge>{text.foreground}</Badge>}
      {permission && <Badge>{permission}</Badge>}
      {typical !== undefined && <Badge>{text.typical(duration(typical))}</Badge>}
    </>
  );
}
