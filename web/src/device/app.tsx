// The layout of the device page. It is made for a phone that is held in one hand: what needs the person comes first,
// and the one button that must always be within reach stands at the bottom.

import { useEffect } from "preact/hooks";
import { Button, Dot, notify, Toasts, type Tone } from "../ui/parts";
import { words } from "../words/device";
import { Canvas } from "./canvasview";
import { Log } from "./logview";
import { Connecting, Elsewhere, Failed, Pairing, Welcome } from "./phases";
import { deviceName, note, stopped } from "./kept";
import { askAgain, phase, start, stop, type Phase } from "./link";
import { awake } from "./live";
import { Now } from "./nowview";
import { Prompts } from "./promptview";
import { AskWake, wakes } from "./pushes";
import { ShownPanel } from "./shownview";
import { Offered } from "./toolview";
import { workerRefused } from "./worker";
import "./app.css";

export function App() {
  useEffect(watchSleep, []);
  const now = phase.value;
  return (
    <div class="page">
      <Header now={now} />
      <main>
        <div class="column">
          <Prompts />
          <Stage now={now} />
          {now.phase === "connected" && <AskWake again={askAgain} />}
          {on(now) && <Now />}
          <ShownPanel />
          <Canvas />
        </div>
        <div class="column">
          {!isSecureContext && <Warning {...words.insecure} />}
          {workerRefused.value && <Warning {...words.untrusted} />}
          <Offered />
          {now.phase !== "new" && <Log />}
        </div>
      </main>
      <Bar now={now} />
      <Toasts />
    </div>
  );
}

const Warning = ({ title, text }: { title: string; text: string }) => (
  <div class="notice warn">
    <h2>{title}</h2>
    <p>{text}</p>
  </div>
);

const on = ({ phase }: Phase): boolean =>
  phase === "connected" || phase === "draining" || phase === "waiting" || phase === "connecting";

const tones: Partial<Record<Phase["phase"], Tone>> = {
  connected: "good", draining: "warn", waiting: "warn", connecting: "warn", pairing: "warn", refused: "bad",
  failed: "bad",
};

function Header({ now }: { now: Phase }) {
  const state = words.state[now.phase === "failed" ? "refused" : now.phase];
  return (
    <header class="top">
      <img src="/icon.svg" alt="" width="28" height="28" />
      <h1 class="cut">{deviceName.value || words.product}</h1>
      <p class="state" role="status">
        <Dot tone={tones[now.phase] ?? ""} />
        {state}
      </p>
    </header>
  );
}

/** What stands at the top: how to connect, or why it is not connected. */
function Stage({ now }: { now: Phase }) {
  switch (now.phase) {
    case "new":
      return <Welcome />;
    case "pairing":
      return <Pairing code={now.code} expires={now.expires} />;
    case "elsewhere":
      return <Elsewhere />;
    case "failed":
    case "refused":
      return <Failed error={now.error} />;
    case "closed":
      return <p class="notice">{words.stoppedText}</p>;
    case "waiting":
      return <p class="notice warn">{words.offlineText}</p>;
    case "connecting":
      return <Connecting />;
    default:
      return null;
  }
}

function Bar({ now }: { now: Phase }) {
  if (now.phase === "new" || now.phase === "elsewhere") return null;
  const running = on(now) || now.phase === "pairing";
  return (
    <footer class="bar">
      {awake.value && <p class="muted">{words.awake}</p>}
      {running && wakes.value && <p class="muted">{words.wake.on}</p>}
      {running ? (
        <Button
          {...(now.phase !== "pairing" && { look: "stop" })}
          aria-describedby="stop-about"
          onClick={() => void stop().catch(failed)}
        >
          {now.phase === "pairing" ? words.pairing.cancel : words.stop}
        </Button>
      ) : (
        <Button look="first" onClick={() => void start()}>
          {words.start}
        </Button>
      )}
      {running && now.phase !== "pairing" && (
        <p id="stop-about" class="muted">
          {words.stopAbout}
        </p>
      )}
    </footer>
  );
}

const failed = (error: unknown): void => notify(String(error), "bad");

const beat = 5_000; // ms
const asleepAfter = 30_000; // ms without a beat

/** Writes down when the phone or the browser put the page to sleep: agents could not reach it then. */
function watchSleep(): () => void {
  let last = Date.now();
  const timer = setInterval(() => {
    const gap = Date.now() - last;
    last = Date.now();
    if (gap > asleepAfter && !stopped.value) note(words.hidden(words.duration(Math.round(gap / 1000))));
  }, beat);
  return () => clearInterval(timer);
}
