// A device reconnects without a delay to a gateway that asks it to come back in a second, and prints when it came.
import { Device } from "@farhand/device";
import { createServer } from "node:http";

const came = [];
const server = createServer();
server.on("upgrade", (_, socket) => {
  came.push(performance.now());
  socket.end("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  if (came.length < 2) return;
  const gap = came[1] - came[0];
  console.log(gap >= 950 ? "in time" : `after ${gap} ms`);
  process.exit();
});
server.listen(0, "127.0.0.1", () => {
  const device = new Device(`ws://127.0.0.1:${server.address().port}`, { backoff: { min: 1, max: 1 } });
  device.on("state", ({ phase }) => {
    if (phase === "waiting") setTimeout(() => device.reconnect());
  });
  device.start();
});
