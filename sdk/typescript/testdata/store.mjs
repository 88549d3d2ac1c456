// Writes to a file until it is killed. node store.mjs FILE: it prints the number of each value that is kept.
import { fileStore } from "@farhand/device";

const store = fileStore(process.argv[2]);
const first = (await store.get("n")) ?? 0;
const kept = new Map(await store.entries("v/"));
for (let n = Math.max(0, first - 50); n < first; n++) {
  if (kept.get(`v/${n}`) !== n) console.log(`lost ${n}`);
}
if (await store.add("once", 1) === first > 0) console.log("added twice");
for (let n = first; ; n++) {
  await Promise.all([
    store.set(`v/${n}`, n), store.set("n", n + 1), store.delete(`v/${n - 60}`), store.set("filler", "x".repeat(20_000))
  ]);
  console.log(n);
}
