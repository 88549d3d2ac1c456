// A device of a gateway that means harm, which prints the gateway's answers. The gateway names a digit as the address of
// a file, which with the address of the gateway is another port, calls a tool with a long id, and sends odd frames.
import { Device, file } from "@farhand/device";
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const listen = (server, port) => new Promise((resolve) => {
  server.once("error", () => resolve(false));
  server.listen(port, "127.0.0.1", () => resolve(true));
});

const elsewhere = () => createServer((request, response) => {
  console.log(`${request.method} ${request.url} was asked elsewhere`);
  response.writeHead(204).end();
});

let port = 2000, server;
for (;; port++) { // a gateway and another server, whose port is that of the gateway and a digit more
  server = createServer();
  if (await listen(server, port) && await listen(elsewhere(), port * 10 + 1)) break;
  server.close();
}
new WebSocketServer({ server }).on("connection", (socket) => {
  const send = (frame) => socket.send(JSON.stringify(frame));
  socket.on("message", (text) => {
    const frame = JSON.parse(text);
    switch (frame.type) {
      case "connect":
        return send({ type: "session_start", v: 1, session_id: "s", resumed: false, resume_token: "t".repeat(16) });
      case "register_tools":
        send({ type: "tools_registered", count: 1, registered: 1, rejected: [null, 1, { name: {} }] });
        send({ type: "connected", wake: { kinds: [null, {}] } });
        send({ type: "tool_call_request", id: "x".repeat(1 << 20), name: "big", args: {} });
        return send({ type: "tool_call_request", id: "1", name: "big", args: {} });
      case "upload_request":
        return send({ type: "upload_slot", id: frame.id, url: "1/x", method: "PUT", size: frame.size });
      case "tool_result":
      case "tool_error":
        console.log(frame.id.length, frame.error ?? "uploaded");
    }
  });
});
const device = new Device(`ws://127.0.0.1:${port}`, { deviceId: "d" });
device.addTool({ name: "big", description: "big" }, () => file(new Uint8Array(3 << 20), "video/mp4", "clip.mp4"));
device.start();
