// Calls a device that sleeps, and then many at once. The lines tell the test when to connect devices.
import { Farhand } from "@farhand/client";

const farhand = new Farhand(process.env.FARHAND_URL, { token: process.env.FARHAND_TOKEN });
async function all(list) {
  const rows = [];
  for await (const row of list) rows.push(row);
  return rows;
}

let [row] = [];
while (!row) [row] = await all(farhand.sessions({ presence: "sleeping" }));
console.log("sleeping:", row.device_id, row.presence, Date.parse(row.last_seen) <= Date.now());
const tools = await all(farhand.tools({ presence: "sleeping", device: "phone" }));
console.log("tools:", tools.map(({ name }) => name).join(" "));

const asleep = { device: "phone", queue: 600_000 };
const ring = await farhand.start("ring", {}, asleep);
console.log("queued:", ring.place, ring.expiresAt > new Date(), (await ring.record()).state);
const next = await farhand.start("ring", {}, asleep);
console.log("cancelled:", next.place, (await next.cancel()).state);
const late = await farhand.start("ring", {}, { device: "phone", queue: 1_000 });
const error = await late.result().catch((error) => error);
console.log("expired:", error.code, error.dispatched, (await late.record()).state);
console.log("unknown:", await farhand.call("ring", {}, { device: "none", queue: 1_000 }).catch(({ code }) => code));
const called = farhand.call("ring", {}, asleep);
console.log("wake the phone");
console.log("delivered:", (await ring.result()).output, (await called).output);

console.log("connect the others");
let devices = 0;
while (devices < 3) devices = (await all(farhand.sessions({ connected: true, labels: { room: "kitchen" } }))).length;
const group = farhand.callDevices("ring", {}, { labels: { room: "kitchen" } });
const results = await group.results();
console.log("group:", results.map(({ deviceId, state, result, error }) =>
  `${deviceId} ${state} ${result?.output ?? error.code + " " + error.message}`).sort().join(", "));
const { devices: called3, succeeded, failed } = group.counts;
console.log("counts:", called3, succeeded, failed, group.state, group.id !== undefined);
const first = farhand.callDevices("ring", {}, { devices: ["one", "two", "none"], mode: "first" });
await first.results();
console.log("first:", first.counts.succeeded > 0, first.state); // two may answer at once
const held = farhand.callDevices("hold", {}, { devices: ["one", "none"] });
for await (const { deviceId, state, error } of held) {
  if (held.counts === undefined && error.code === "session_not_found") await held.cancel();
  console.log("held:", deviceId, state, error.code);
}
console.log("held:", held.state);
console.log("refused:", await farhand.callDevices("nothing").results().catch(({ code, dispatched }) => [code, dispatched]));
