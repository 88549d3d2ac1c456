import { Badge, Panel } from "../ui/parts";
import { words } from "../words/device";
import { switchedOff } from "./kept";
import { phase } from "./link";
import { offered, toggle, toolByName } from "./toolset";

/** The tools, each with its switch, and why one cannot be used here. */
export function Offered() {
  return (
    <Panel
      title={words.offered.title}
      actions={<span class="muted number">{words.offered.count(offered.value.size, toolByName.size)}</span>}
    >
      <p class="muted">{words.offered.about}</p>
      {words.groups.map(({ title, tools }) => {
        const on = tools.filter((name) => offered.value.has(name)).length;
        return (
          <details key={title} class="group">
            <summary>
              <span>{title}</span>
              <span class="muted number">{words.offered.count(on, tools.length)}</span>
            </summary>
            <ul>
              {tools.map((name) => (
                <Row key={name} name={name} />
              ))}
            </ul>
          </details>
        );
      })}
    </Panel>
  );
}

function Row({ name }: { name: string }) {
  const { tool, missing } = toolByName.get(name)!;
  const { title, about } = words.tools[name]!;
  const why = missing();
  const refused = phase.value.phase === "connected" && phase.value.rejected.find((one) => one.name === name);
  return (
    <li>
      <label class="switch">
        <span>
          <span class="title">
            {title} {tool.securityLevel === "user_confirm" && <Badge>{words.offered.confirm}</Badge>}
          </span>
          <span class="muted">{about}</span>
          {why && <span class="why">{why}</span>}
          {refused && <span class="why">{words.offered.refused(refused.reason)}</span>}
        </span>
        <input
          type="checkbox"
          role="switch"
          checked={!why && !switchedOff.value.includes(name)}
          disabled={why !== undefined}
          onChange={(event) => toggle(name, event.currentTarget.checked)}
        />
      </label>
    </li>
  );
}
