// A2UI in the canvas, drawn by the renderer of the A2UI project.

import { A2uiSurface, basicCatalog } from "@a2ui/lit/v0_9";
import { MessageProcessor, type A2uiMessage, type SurfaceModel } from "@a2ui/web_core/v0_9";
import type { LitComponentApi } from "@a2ui/lit/v0_9";

let listener: (action: unknown) => void = () => {};
const processor = new MessageProcessor([basicCatalog], (action) => listener(action));
const surfaces = new Map<string, HTMLElement>();

const place = document.createElement("div");
place.className = "objects";

processor.onSurfaceCreated((surface: SurfaceModel<LitComponentApi>) => {
  const element = document.createElement("a2ui-surface") as A2uiSurface;
  element.surface = surface;
  surfaces.set(surface.id, element);
  place.append(element);
});
processor.onSurfaceDeleted((id) => {
  surfaces.get(id)?.remove();
  surfaces.delete(id);
});

const olderForms = ["surfaceUpdate", "dataModelUpdate", "beginRendering", "deleteSurface"];

/** Shows objects, each given as JSON. What is no A2UI is shown as text. It tells what the person uses to onAction. */
export function push(lines: readonly string[], onAction: (action: unknown) => void): void {
  listener = onAction;
  if (!place.isConnected) document.body.append(place);
  for (const line of lines) {
    const object = JSON.parse(line) as Record<string, unknown>;
    const { version } = object;
    if (typeof version === "string" && !/^v0\.9(\.\d+)?$/.test(version)) {
      throw new TypeError(`this canvas draws A2UI 0.9, not "${version}"`);
    }
    if (typeof version === "string") processor.processMessages([object as unknown as A2uiMessage]);
    else if (olderForms.some((key) => key in object)) {
      throw new TypeError('this is A2UI 0.8, and the canvas draws 0.9: send messages with "version": "v0.9"');
    } else {
      const text = document.createElement("pre");
      text.textContent = typeof object["text"] === "string" ? object["text"] : JSON.stringify(object, null, 2);
      place.append(text);
    }
  }
}
