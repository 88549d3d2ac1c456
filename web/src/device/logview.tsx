import { Badge, Button, Dot, Panel, Time } from "../ui/parts";
import { words } from "../words/device";
import { forget, log } from "./kept";
import { previews } from "./live";

export function Log() {
  return (
    <Panel
      title={words.log.title}
      actions={
        log.value.length > 0 && (
          <Button small look="plain" onClick={forget}>
            {words.log.clear}
          </Button>
        )
      }
    >
      {log.value.length === 0 ? (
        <p class="muted">{words.log.none}</p>
      ) : (
        <ol class="log">
          {log.value.map(({ id, at, tool, text, outcome, error }) => (
            <li key={id}>
              <p class="line">
                <Dot tone={outcome === "done" ? "good" : outcome === "failed" ? "bad" : ""} />
                <span class="what">{tool ? (words.tools[tool]?.title ?? tool) : text}</span>
                {outcome === "failed" && <Badge tone="bad">{words.log.failed}</Badge>}
                <span class="muted">
                  <Time at={at} />
                </span>
              </p>
              {tool && text && <p class="muted plain">{text}</p>}
              {error && <p class="error plain">{error}</p>}
              {previews.value.has(id) && <img src={previews.value.get(id)} alt={words.log.picture} />}
            </li>
          ))}
        </ol>
      )}
      <p class="muted about">{words.log.about}</p>
    </Panel>
  );
}
