import type { ToolEffects, ToolTags } from "../../api/types";
import { Badge } from "../../ui/parts";
import { words } from "../../words/en";

const text = words.effects;

/** What a tool declares about its calls. The device says it; the gateway does not verify it. */
export function EffectMarks({ effects, tags = [] }: { effects?: ToolEffects; tags?: ToolTags }) {
  return (
    <>
      {effects?.class && <Badge tone={effects.class === "people" ? "warn" : ""}>{text.class[effects.class]}</Badge>}
      {effects?.needs_foreground && <Badge>{text.foreground}</Badge>}
      {effects?.permission && <Badge>{text.permission(effects.permission)}</Badge>}
      {effects?.cost && <Badge tone={effects.cost === "high" ? "warn" : ""}>{text.cost[effects.cost]}</Badge>}
      {effects?.typical_ms && <Badge>{text.typical(effects.typical_ms)}</Badge>}
      {tags.map((tag) => (
        <Badge key={tag}>#{tag}</Badge>
      ))}
    </>
  );
}
