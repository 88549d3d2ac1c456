// What the compiler must know of handlers' arguments. It is compiled, not run.
import { Device, type Call, type Credential, type State } from "@farhand/device";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";

const device = new Device("https://gateway.example.com");
device.addTool({ name: "a", description: "", parameters: z.object({ n: z.number() }) }, ({ n }) => n.toFixed());
device.addTool({ name: "b", description: "", parameters: type({ word: "string" }) }, ({ word }) => word.trim());
device.addTool(
  { name: "c", description: "", parameters: v.object({ on: v.boolean() }), jsonSchema: { type: "object" } },
  ({ on }, call: Call) => (on ? call.callId : undefined),
);
device.addTool({ name: "d", description: "", parameters: { type: "object" } }, (args) => args["x"]);
// @ts-expect-error: the schema has no member m
device.addTool({ name: "e", description: "", parameters: z.object({ n: z.number() }) }, ({ m }) => m);
// @ts-expect-error: a tool has a description
device.addTool({ name: "f" }, () => "");
device.on("state", (state: State) => {
  if (state.phase === "waiting") state.retryAt.getTime();
  // @ts-expect-error: only some states have an error
  state.error.code;
});
const credential: Credential = { token: "fhd_1", deviceId: "d" };
new Device(new URL("wss://gateway.example.com/ws/chat"), { credential, labels: { floor: "2" } });
