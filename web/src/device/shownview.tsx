import { Button, Panel } from "../ui/parts";
import { words } from "../words/device";
import { show, shown } from "./live";
import { WorldMap } from "./map";

/** What the tool show has put here. */
export function ShownPanel() {
  const what = shown.value;
  if (!what) return null;
  const { title, text, picture, place } = what;
  return (
    <Panel
      title={words.shown.title}
      actions={
        <Button small look="plain" onClick={() => show(undefined)}>
          {words.shown.clear}
        </Button>
      }
    >
      <div class="shown" aria-live="polite">
        {title && <h3>{title}</h3>}
        {text && <p class="plain">{text}</p>}
        {picture && <img src={picture} alt={title ?? text ?? words.shown.title} />}
        {place && <WorldMap {...place} />}
      </div>
    </Panel>
  );
}
