// The document of the canvas. Code of agents runs here, so it keeps nothing secret and trusts its parent only: the page
// in which it is framed, since no other page may frame it.

import "./frame.css";

type Command =
  | { id: number; do: "eval"; code: string }
  | { id: number; do: "navigate"; url: string }
  | { id: number; do: "push"; lines: string[] }
  | { id: number; do: "picture"; quality: number };

const say = (message: object): void => parent.postMessage(message, "*");

async function run(command: Command): Promise<unknown> {
  switch (command.do) {
    case "eval": {
      const value: unknown = await (0, eval)(command.code);
      return JSON.stringify(value) ?? JSON.stringify(String(value));
    }
    case "navigate":
      return navigate(command.url);
    case "push":
      return (await import("./a2ui")).push(command.lines, (action) => say({ tap: JSON.stringify(action) }));
    case "picture":
      return (await import("./picture")).picture(command.quality);
  }
}

/** Shows a page of another site, in a frame of the frame: it has an opaque origin, too. */
function navigate(url: string): void {
  const shown = document.querySelector<HTMLIFrameElement>("iframe.page") ?? document.createElement("iframe");
  shown.className = "page";
  shown.title = url;
  shown.setAttribute("sandbox", "allow-scripts allow-forms");
  shown.referrerPolicy = "no-referrer";
  shown.src = url;
  if (!shown.isConnected) document.body.prepend(shown);
}

// In order: a push that loads the renderer must not be overtaken by the next.
let last: Promise<unknown> = Promise.resolve();

addEventListener("message", ({ source, data }: MessageEvent<Command>) => {
  if (source !== parent) return;
  const answer = async (): Promise<void> => {
    try {
      say({ id: data.id, ok: true, value: await run(data) });
    } catch (error) {
      say({ id: data.id, ok: false, value: String(error) });
    }
  };
  if (data.do === "eval") void answer();
  else last = last.then(answer);
});

say({ ready: true });
