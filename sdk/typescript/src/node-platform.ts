import { WebSocket, type ClientOptions } from "ws";
import { FarhandError } from "./errors.js";
import { bearer, dialTimeout, refused } from "./http.js";
import { subprotocol, type Platform } from "./platform.js";
import { memoryStore } from "./store.js";

const mostBytes = 16 << 20; // of a frame of the gateway
const closeTimeout = 1_000; // ms, for the gateway to end a connection after the close frames
const mostProblem = 64 << 10; // characters of a problem document

export const node: Platform = {
  name: process.platform,
  seesPings: true,
  keepsKeys: false,

  dial(_address, url, auth, events) {
    const headers = { ...bearer(auth.token), ...(auth.signature && { "Farhand-Signature": auth.signature }) };
    const options: ClientOptions & { closeTimeout: number } = { // which @types/ws does not know
      headers, handshakeTimeout: dialTimeout, maxPayload: mostBytes, closeTimeout,
    };
    const socket = new WebSocket(url, subprotocol, options);
    let error: FarhandError | undefined;
    let opened = false;
    const end = (code: number, reason: string): void => {
      socket.removeAllListeners("close");
      events.closed(code, reason, error);
    };
    socket.on("open", () => {
      opened = true;
      events.open();
    });
    socket.on("message", (data, binary) => {
      if (!binary) events.message(String(data));
    });
    socket.on("ping", () => events.alive());
    socket.on("unexpected-response", (request, response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (more: string) => {
        if (body.length < mostProblem) body += more;
      });
      response.on("close", () => {
        error = refused(response.statusCode ?? 0, body, response.headers["retry-after"]);
        request.destroy();
        end(1006, "");
      });
    });
    socket.on("error", (cause) => {
      if (!opened) error ??= new FarhandError("unreachable", `no gateway answers: ${cause.message}`);
    });
    socket.on("close", (code, reason) => end(code, reason.toString()));
    return {
      send: (frame) => {
        if (socket.readyState === WebSocket.OPEN) socket.send(frame);
      },
      close: () => {
        if (socket.readyState === WebSocket.CONNECTING) socket.terminate();
        else socket.close(1000);
      },
    };
  },

  store: () => memoryStore(),

  onWake: () => () => {},
};
