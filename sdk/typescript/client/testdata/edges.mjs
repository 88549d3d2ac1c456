// Does one thing with a gateway that behaves badly, and prints what came of it.
import { Farhand } from "@farhand/client";

const [url, does] = process.argv.slice(2);
const stop = new AbortController();
let sent = () => {};
const watched = (...args) => {
  const answer = fetch(...args);
  sent();
  return answer;
};
const farhand = new Farhand(url, { token: "secret", patience: 20_000, fetch: watched });
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
