// A device with one slot, whose memory is collected while a call waits for the slot. It prints how each call ended.
import { Device } from "@farhand/device";
import { createServer } from "node:http";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { WebSocketServer } from "ws";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");
const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
new WebSocketServer({ server }).on("connection", (socket) => {
  const send = (frame) => socket.send(JSON.stringify(frame));
  socket.on("message", (text) => {
    const frame = JSON.parse(text);
    switch (frame.type) {
      case "connect":
        return send({ type: "session_start", v: 1, session_id: "s", resumed: false, resume_token: "t".repeat(16) });
      case "register_tools":
        send({ type: "tools_registered", count: 1, registered: 1, rejected: [] });
        send({ type: "connected" });
        send({ type: "tool_call_request", id: "1", name: "hold", args: {} });
        send({ type: "tool_call_request", id: "2", name: "hold", args: {}, deadline_ms: 1 });
        return setInterval(collect, 50);
      case "tool_error":
        console.log(frame.id, frame.error);
    }
  });
});
const device = new Device(`ws://127.0.0.1:${server.address().port}`, { deviceId: "d", parallelism: 1 });
device.addTool({ name: "hold", description: "hold" }, () => new Promise(() => {}));
device.start();
