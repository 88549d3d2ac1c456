// The tools of this page: which this browser can offer, and which the person leaves switched on.

import type { Device } from "@farhand/device";
import { computed, effect } from "@preact/signals";
import { switchedOff } from "./kept";
import { bodyTools } from "./tools/body";
import { cameraTools } from "./tools/camera";
import { canvasTools } from "./tools/canvas";
import { personTools } from "./tools/person";
import { sensorTools } from "./tools/sensors";
import { soundTools } from "./tools/sound";
import type { PageTool } from "./tools/tool";

const all: readonly PageTool[] = [
  ...personTools, ...cameraTools, ...soundTools, ...sensorTools, ...bodyTools, ...canvasTools,
];

export const toolByName: ReadonlyMap<string, PageTool> = new Map(all.map((one) => [one.tool.name, one]));

/** Names of what this browser may offer one day. The approver of a pairing decides about them at once. */
export const everOffered = (): string[] => all.map(({ tool }) => tool.name);

/** Names of the tools that are offered. */
export const offered = computed<ReadonlySet<string>>(() => {
  const off = new Set(switchedOff.value);
  return new Set(all.filter(({ tool, missing }) => !off.has(tool.name) && !missing()).map(({ tool }) => tool.name));
});

export const toggle = (name: string, on: boolean): void =>
  void (switchedOff.value = on ? switchedOff.value.filter((one) => one !== name) : [...switchedOff.value, name]);

/** Registers what is offered, now and as it changes. The returned function ends that. */
export function offerTo(device: Device): () => void {
  return effect(() => {
    for (const { tool, run } of all) {
      const is = device.tools.includes(tool.name);
      if (offered.value.has(tool.name)) {
        if (!is) device.addTool(tool, (args, call) => run(args as never, call));
      } else if (is) {
        device.removeTool(tool.name);
      }
    }
  });
}
