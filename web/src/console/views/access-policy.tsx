// The policy in force, and what it decides.

import { Problem } from "../../api/client";
import type { Policy as PolicyText, PolicyRule } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Badge, Copy, Empty, Panel, type Tone } from "../../ui/parts";
import { words } from "../../words/en";
import { client } from "../session";
import { Explain } from "./access-explain";

const text = words.policy;

export function Policy() {
  return (
    <div class="columns">
      <div class="stack">
        <Rules />
      </div>
      <Explain />
    </div>
  );
}

function Rules() {
  const loaded = useLoaded((signal) => client.get<PolicyText>("/api/policy", { signal }), []);
  const policy = loaded.value;
  if (loaded.error instanceof Problem && loaded.error.status === 403) return <p class="notice">{text.notOperator}</p>;
  if (!policy) return <NotYet loaded={loaded} />;
  const lists = Object.entries(policy.lists);
  return (
    <>
      {policy.refused && (
        <div class="notice bad" role="alert">
          <p>{text.refused}</p>
          <pre>{policy.refused}</pre>
        </div>
      )}
      <Panel
        title={text.file}
        actions={
          <>
            <Badge title={text.digest}>{policy.digest.slice(0, 12)}</Badge>
            {policy.file && <Copy text={policy.file} />}
          </>
        }
        flush={policy.file !== undefined}
      >
        {policy.file ? (
          <Lines file={policy.file} />
        ) : (
          <Empty title={text.noFile.title}>
            <p class="muted">{text.noFile.text}</p>
          </Empty>
        )}
      </Panel>
      {lists.length > 0 && (
        <Panel title={text.lists}>
          <dl class="facts">
            {lists.map(([name, globs]) => (
              <ListRow key={name} name={text.list[name as keyof typeof text.list]} globs={globs} />
            ))}
          </dl>
        </Panel>
      )}
      <Panel title={text.defaults} flush>
        {policy.defaults.map((rule) => (
          <Default key={rule.id} rule={rule} />
        ))}
      </Panel>
    </>
  );
}

function ListRow({ name, globs }: { name: string; globs: string[] }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>
        <code>{globs.join(" ")}</code>
      </dd>
    </>
  );
}

/** The file, with the numbers of its lines, which are the ids of rules without one. */
function Lines({ file }: { file: string }) {
  const lines = file.replace(/\n$/, "").split("\n");
  return (
    <ol class="lines" tabIndex={0} aria-label={text.file}>
      {lines.map((line, i) => (
        <li key={i}>
          <code>{line || " "}</code>
        </li>
      ))}
    </ol>
  );
}

const tones: Record<PolicyRule["state"], Tone> = { in_force: "good", replaced: "accent", off: "warn" };

function Default({ rule }: { rule: PolicyRule }) {
  return (
    <details class="rule">
      <summary>
        <code>{rule.id}</code>
        <Badge tone={tones[rule.state]}>{text.states[rule.state]}</Badge>
      </summary>
      {rule.about && <p>{rule.about.replaceAll("`", "").replace(/\[(.+?)\]\(.+?\)/g, "$1")}</p>}
      <pre class="args">{rule.text}</pre>
    </details>
  );
}
