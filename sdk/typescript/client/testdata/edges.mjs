// Does one thing with a gateway that behaves badly, and prints what came of it.
import { getEventListeners } from "node:events";
import { Farhand } from "@farhand/client";
import { farhandTools } from "@farhand/client/anthropic";

const [url, does] = process.argv.slice(2);
const stop = new AbortController();
let sent = () => {};
const watched = (...args) => {
  const answer = fetch(...args);
  sent();
  return answer;
};
const farhand = new Farhand(url, { token: "secret", retryFor: 20_000, fetch: watched });
const enough = () => stop.abort(new Error("enough"));

const things = {
  call: () => farhand.call("work"),
  once: () => farhand.call("work", {}, { idempotencyKey: false }),
  cancel: () => {
    sent = enough; // while the request is on its way
    return farhand.call("work", {}, { signal: stop.signal });
  },
  pause: () => {
    const called = farhand.call("work", {}, { signal: stop.signal });
    setTimeout(enough, 500); // the gateway asks to come back in a second
    return called;
  },
  async follow() {
    const all = [];
    for await (const event of farhand.pending("c1")) all.push(event);
    return { output: JSON.stringify(all) };
  },
  async file() {
    const { parts } = await farhand.call("work", {}, { idempotencyKey: false });
    const blob = await parts[0].blob();
    return { output: `${blob.size} ${blob.type} ${await blob.text()}` };
  },
  async images() {
    const [tool] = await farhandTools(farhand);
    return { output: JSON.stringify((await tool.run({})).map(({ text, source }) => text ?? source.data)) };
  },
  approval: () => farhand.approvals.wait("a1"),
  async again() {
    const call = farhand.pending("c1", { signal: stop.signal });
    const listeners = () => getEventListeners(stop.signal, "abort").length;
    const { code } = await call.cancel().catch((error) => error);
    const before = listeners();
    const { state } = await call.cancel();
    return { output: `${code} ${state}, ${before} then ${listeners()} listeners` };
  },
  async origin() {
    const failure = (path) => farhand.request("GET", path).catch((error) => error.name);
    return { output: `${await failure("https://127.0.0.1:1/x")} ${await failure("///127.0.0.1:1/x")}` };
  },
  async elsewhere() {
    const { parts } = await farhand.call("work", {}, { idempotencyKey: false });
    const codes = parts.map((part) => part.bytes().then(() => "fetched", ({ code, cause }) => cause ? "redirected" : code));
    return { output: (await Promise.all(codes)).join(" ") };
  },
  async token() {
    const slow = new Farhand(url, { token: () => new Promise(() => {}) });
    setTimeout(enough, 100);
    const error = await slow.request("GET", "/api/me", { signal: stop.signal }).catch((error) => error);
    return { output: error.message };
  },
  async failing() {
    const failing = new Farhand(url, { token: () => Promise.reject(new Error("no token")) });
    return { output: (await failing.me().catch((error) => error)).message };
  }
};
try {
  console.log((await things[does]()).output);
} catch (error) {
  const { code, dispatched, retryable, retryAfter, cause } = error;
  if (!code) throw error;
  const why = code === "cancelled" ? " " + cause.message : "";
  console.log(`${code} ${dispatched} ${retryable} ${retryAfter}${why}`);
}
