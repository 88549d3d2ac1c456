// Makes this machine a device with two tools.
//
//   npm install
//   FARHAND_URL=… FARHAND_TOKEN=… node device.js laptop
//
// It keeps its session and its calls in laptop.jsonl: no call runs twice, also after a restart.
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Device, fileStore } from "@farhand/device";

const [name = os.hostname()] = process.argv.slice(2);
const device = new Device(process.env.FARHAND_URL ?? "http://127.0.0.1:8080", {
  token: process.env.FARHAND_TOKEN,
  deviceId: name,
  session: name,
  deviceName: os.hostname(),
  platform: process.platform,
  store: fileStore(`${name}.jsonl`)
});
device.addTool(
  { name: "host", description: "Describe this machine: name, system, memory, uptime.", hints: { readOnlyHint: true } },
  () => ({ name: os.hostname(), system: os.platform(), free_memory: os.freemem(), uptime_s: Math.round(os.uptime()) })
);
const parameters = {
  type: "object",
  properties: { to: { type: "integer", minimum: 1, maximum: 100 }, step_ms: { type: "integer", maximum: 1000 } },
  required: ["to"]
};
device.addTool(
  { name: "count", description: "Count to a number, one step every step_ms.", parameters },
  async ({ to, step_ms = 100 }, { signal, progress }) => {
    for (let n = 1; n <= to; n++) {
      await sleep(step_ms, undefined, { signal }); // a cancelled call ends here
      progress(n, to, `at ${n}`);
    }
    return `counted to ${to}`;
  }
);
device.on("state", ({ phase, error }) => console.log(phase, error?.message ?? ""));
process.once("SIGINT", () => device.stop());
process.once("SIGTERM", () => device.stop());
await device.start();
