// Calls through two pods until SIGTERM, in every style, and prints what came of each call.
import { Farhand } from "@farhand/client";

const clients = process.argv.slice(2).map((url) => new Farhand(url, { token: process.env.FARHAND_TOKEN }));
let going = true;
process.once("SIGTERM", () => (going = false));

const styles = {
  call: (farhand, args) => farhand.call("work", args, { session: "worker" }),
  once: (farhand, args) => farhand.call("work", args, { device: "worker", idempotencyKey: false }),
  async start(farhand, args) {
    const call = await farhand.start("work", args, { device: "worker" });
    const states = [];
    for await (const event of call) if (event.type === "state") states.push(event.state);
    if (new Set(states).size !== states.length) throw new Error(`states twice: ${states}`);
    return call.result();
  },
  async abort(farhand, args) {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(new Error("enough")), Math.random() * 400);
    try {
      return await farhand.call("work", { ...args, ms: 300 }, { session: "worker", signal: stop.signal });
    } finally {
      clearTimeout(timer);
    }
  }
};

let made = 0;
async function work(style, farhand) {
  while (going) {
    const nonce = `${style}-${++made}`;
    const said = { nonce, style };
    try {
      const { output } = await styles[style](farhand, { nonce, ms: Math.floor(Math.random() * 250) });
      Object.assign(said, { ok: true, output });
    } catch (error) {
      if (!error.code) throw error;
      Object.assign(said, { code: error.code, dispatched: error.dispatched, message: error.message });
    }
    console.log(JSON.stringify(said));
  }
}
await Promise.all(Object.keys(styles).flatMap((style) => clients.map((farhand) => work(style, farhand))));
