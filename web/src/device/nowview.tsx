import { Panel } from "../ui/parts";
import { words } from "../words/device";
import { running } from "./live";

/** What agents do at this moment. */
export function Now() {
  return (
    <Panel title={words.now.title}>
      {running.value.length === 0 ? (
        <>
          <p class="muted">{words.now.none}</p>
          <p class="muted about">{words.background}</p>
        </>
      ) : (
        <ul class="now" aria-live="polite">
          {running.value.map(({ id, tool, progress }) => (
            <li key={id}>
              <span class="pulse" aria-hidden="true" />
              <span>{words.tools[tool]?.running ?? tool}</span>
              {progress?.total !== undefined && (
                <progress
                  aria-label={words.tools[tool]?.running ?? tool}
                  max={progress.total}
                  value={progress.done}
                />
              )}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
