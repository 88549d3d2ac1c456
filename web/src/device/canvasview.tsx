import { useEffect, useRef } from "preact/hooks";
import { Button, classes } from "../ui/parts";
import { words } from "../words/device";
import { attach, generation, hear, hide, visible } from "./canvas";

/** The frame of the canvas. Hidden, it keeps its size, so that pictures of it are the same. */
export function Canvas() {
  useEffect(hear, []);
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => {
    attach(frame.current);
  }, [generation.value]);
  if (generation.value === 0 && !visible.value) return null;
  return (
    <section
      class={classes("panel", "canvas", !visible.value && "away")}
      aria-hidden={!visible.value}
      inert={!visible.value}
    >
      <header>
        <h2>{words.canvas.title}</h2>
        <Button small look="plain" onClick={() => void hide()}>
          {words.canvas.hide}
        </Button>
      </header>
      {generation.value > 0 && (
        <iframe
          key={generation.value}
          ref={frame}
          src="/device/canvas"
          title={words.canvas.frame}
          sandbox="allow-scripts allow-forms"
          referrerpolicy="no-referrer"
        />
      )}
      <p class="muted about">{words.canvas.about}</p>
    </section>
  );
}
