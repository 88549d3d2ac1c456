// Offers a tool of each library of schemas, and one malformed tool. node schemas.mjs GATEWAY
import { Device, file } from "@farhand/device";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";

const device = new Device(process.argv[2], { deviceId: "schemas" });
const add = (name, parameters, jsonSchema) =>
  device.addTool({ name, description: name, parameters, ...(jsonSchema && { jsonSchema }) }, (args) => args);

const day = z.string().transform((s) => s.length);
add("zod", z.object({ n: z.int().min(1), word: z.string().default("none"), day }));
add("arktype", type({ n: "number.integer >= 1", "word?": "string" }));
const withWord = v.object({ word: v.pipe(v.string(), v.trim(), v.minLength(2, "it is too short")) });
try {
  add("valibot", withWord);
  console.log("valibot needs no JSON Schema");
} catch (error) {
  console.log(error.message);
}
add("valibot", withWord, { type: "object", properties: { word: { type: "string" } }, required: ["word"] });
for (const name of ["", "-x", "a b", "x".repeat(65)]) {
  try {
    add(name, { type: "object" });
    console.log(`the name ${name} is taken`);
  } catch { /* as it should */ }
}
device.addTool({ name: "big", description: "big" }, () => file(new Uint8Array(3 << 20), "video/mp4", "clip.mp4"));
await device.start();
console.log(JSON.stringify(device.state));
