// The driver of the TypeScript SDK, for Node.js and browsers. ../README.md has its commands and reports.

/** Gates of calls that wait: one is released before or after its handler has come to it. */
function makeGates () {
  const gates = new Map();
  return (call) => {
    if (!gates.has(call)) {
      const made = {};
      made.opened = new Promise((resolve) => { made.open = resolve; });
      gates.set(call, made);
    }
    return gates.get(call);
  };
}

/** Returns the handlers by name. */
function handlers (sdk, gate, count, report) {
  const { Result, file, image } = sdk;
  const asleep = (callId) => gate(callId).opened;
  return {
    echo: ({ text }) => text,
    trace: (_args, { traceparent }) => traceparent,
    json: (args) => args,
    list: () => [1, "two", null],
    nothing: () => undefined,
    fail: ({ text }) => { throw new Error(text); },
    crash: () => { throw "the handler crashed"; }, // eslint-disable-line no-throw-literal
    wait: async (_args, { callId, signal }) => {
      const cancelled = new Promise((resolve) => signal.addEventListener("abort", () => resolve("cancelled")));
      return Promise.race([asleep(callId).then(() => "released"), cancelled]);
    },
    stubborn: async (_args, { callId }) => asleep(callId).then(() => "released"),
    ledger: async ({ text, ms }, { callId }) => {
      report({ began: text, call: callId });
      await new Promise((resolve) => setTimeout(resolve, ms));
      report({ gave: text, call: callId });
      return text;
    },
    count: () => String(count()),
    progress: async (_args, { progress, chunk }) => {
      progress(1, 2, "half");
      progress(2);
      await chunk("all of it");
      return "all of it";
    },
    big: ({ bytes }) => "x".repeat(bytes),
    picture: () => new Result("see", [image(Uint8Array.of(0x89, 0x50, 0x4e, 0x47), "image/png", "snap.png")]),
    upload: ({ bytes }, { upload }) => upload(file(new Uint8Array(bytes), "video/mp4", "clip.mp4"))
      .then((part) => new Result("sent", [part]))
  };
}

/** A store that says when the acknowledgement of a call is written down. */
function watched (store) {
  const written = new Set();
  const waiting = [];
  return {
    ...store,
    async set (key, value) {
      await store.set(key, value);
      if (value.acknowledged) written.add(key);
      for (const check of waiting) check();
    },
    settled: (calls) => new Promise((resolve) => {
      const check = () => { if (calls.every((call) => written.has(`call/${call}`))) resolve(); };
      waiting.push(check);
      check();
    })
  };
}

/**
 * Runs commands with an SDK. A command names its device, and so do reports. `report` gets objects; `makeStore` returns
 * the store of a device, which survives a restart if it should.
 */
export function drive (sdk, report, makeStore) {
  const devices = new Map();
  return (command) => {
    const { device } = command;
    if (!devices.has(device)) devices.set(device, driveOne(sdk, (said) => report({ device, ...said }), makeStore));
    return devices.get(device)(command);
  };
}

function driveOne (sdk, report, makeStore) {
  let device;
  let store;
  let ended = false;
  let runs = 0;
  const gate = makeGates();
  const all = handlers(sdk, gate, () => runs, report);
  const add = (name, { security, effects, tags } = {}) => device.addTool(
    {
      name, description: `The tool ${name}.`, parameters: { type: "object" },
      ...(security && { securityLevel: security }), ...(effects && { effects }), ...(tags && { tags })
    },
    (args, call) => {
      if (name !== "count") runs++;
      return all[name]?.(args, call);
    });

  const approver = (decision) => async (question, { signal }) => {
    report({ asked: question.id, tool: question.tool, text: question.text, call: question.callId });
    signal.addEventListener("abort", () => report({ withdrawn: question.id }));
    if (decision !== "wait") return decision;
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  };

  const tell = (state) => {
    switch (state.phase) {
      case "connected":
        return report({
          state: state.phase, registered: state.registered, resumed: state.resumed, session: state.sessionId,
          rejected: state.rejected.map(({ name }) => name)
        });
      case "waiting":
      case "refused":
        return report({ state: state.phase, why: state.error.code });
      default:
        return report({ state: state.phase });
    }
  };

  async function start (url, o) {
    store = watched(await makeStore(o.store));
    let credential;
    if (o.pair) {
      credential = await sdk.pair(url, { deviceId: o.device_id, deviceName: o.device_name, platform: o.platform,
        tools: o.tools ?? [], store, show: (code) => report({ code }) });
    }
    const given = { credential, session: o.session, name: o.name, deviceId: o.device_id, deviceName: o.device_name,
      platform: o.platform, labels: o.labels, token: o.token, store, parallelism: o.parallelism, silence: o.silence_ms,
      backoff: { min: 1, max: 5 }, approver: o.approver && approver(o.approver), wake: o.wake && (() => o.wake) };
    if (ended) return;
    device = new sdk.Device(url, Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)));
    device.on("state", tell);
    for (const name of o.tools ?? []) add(name);
    device.start();
  }

  return async (command) => {
    try {
      switch (command.do) {
        case "start": return await start(command.url, command.options ?? {});
        case "end":
          ended = true;
          return await device?.stop();
        case "stop": return await device?.stop();
        case "add": return add(command.tool, command);
        case "remove": return device.removeTool(command.tool);
        case "foreground": return device.setForeground(command.on);
        case "default": return void device.setDefault();
        case "settle":
          await store.settled(command.acknowledged);
          return report({ settled: true });
        case "release": return gate(command.call).open();
        case "say":
        case "regenerate": {
          const onEvent = (event) => report({ turn: event });
          const options = { onEvent, debug: command.debug };
          const { chat } = device;
          const turn = command.do === "say" ? chat.send(command.content, options) : chat.regenerate(options);
          return void turn.then((said) => report({ said }), (error) => report({ unsaid: error.code }));
        }
        case "abort": return device.chat.abort();
        default: throw new Error(`the command ${command.do} is unknown`);
      }
    } catch (error) {
      report({ problem: String(error?.stack ?? error) });
    }
  };
}
