// The result of a tool. Its content is a device's: nothing of it is ever a page of the console's origin.

import { useEffect, useState } from "preact/hooks";
import type { CallRecord, Part } from "../../api/types";
import { Button, Copy, Failure } from "../../ui/parts";
import { words } from "../../words/en";
import { bytes, Segmented } from "./bits";
import { Tree } from "./tree";

const text = words.call;
const mostText = 200_000; // characters of an output that are shown

export function Result({ record }: { record: CallRecord }) {
  const { output, structured, parts = [], output_violations: violations = [] } = record;
  if (record.output_kept === false) return <p class="muted">{text.notKept}</p>;
  return (
    <div class="result">
      {record.error && (
        <p class="notice bad" role="alert">
          {record.error}
        </p>
      )}
      {violations.length > 0 && (
        <div class="notice warn">
          <p>{text.violations}</p>
          <ul>
            {violations.map((violation) => (
              <li key={violation.pointer + violation.message}>
                <code>{violation.pointer || "/"}</code> {violation.message}
              </li>
            ))}
          </ul>
        </div>
      )}
      {parts.map((part, i) => (
        <PartView key={i} part={part} />
      ))}
      <Output output={output ?? ""} structured={structured} />
      {!output && structured === undefined && parts.length === 0 && !record.error && (
        <p class="muted">{text.noOutput}</p>
      )}
    </div>
  );
}

function Output({ output, structured }: { output: string; structured: unknown }) {
  const value = structured ?? parsed(output);
  const [as, setAs] = useState("tree");
  if (!output && value === undefined) return null;
  return (
    <>
      {value !== undefined && (
        <Segmented label={text.result} value={as} options={{ tree: text.tree, text: text.text }} onChange={setAs} />
      )}
      <div class="copied">
        {value !== undefined && as === "tree" ? (
          <div class="tree output" role="group" aria-label={text.result} tabIndex={0}>
            <Tree value={value} />
          </div>
        ) : (
          <pre class="output" tabIndex={0}>
            {output.slice(0, mostText)}
          </pre>
        )}
        <Copy text={output} />
      </div>
      {output.length > mostText && (
        <p class="muted">
          {text.cut} <Save name="output.txt" load={async () => new Blob([output])} />
        </p>
      )}
    </>
  );
}

/** The value of an output that is JSON, and more than a plain value. */
function parsed(output: string): unknown {
  if (output.length > mostText || !/^\s*[[{]/.test(output)) return undefined;
  try {
    return JSON.parse(output);
  } catch {
    return undefined;
  }
}

// What a browser shows without running anything of it. SVG and HTML are not among these.
const pictures = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];
const isVideo = (type: string) => /^video\/(mp4|webm|ogg|quicktime)$/.test(type);
const isAudio = (type: string) => /^audio\/[\w.-]+$/.test(type);

function PartView({ part }: { part: Part }) {
  const type = part.mime_type;
  const shown = pictures.includes(type) || isVideo(type) || isAudio(type);
  const [show, setShow] = useState(part.data !== undefined || pictures.includes(type));
  const [url, error] = useObjectURL(part, shown && show);
  const name = part.name || part.type;
  if (!part.data && !local(part.url)) {
    return (
      <p class="muted">
        {name} · {type} · {text.lostPart}
      </p>
    );
  }
  return (
    <figure>
      {url && pictures.includes(type) && <img src={url} alt={name} />}
      {url && isVideo(type) && <video src={url} controls aria-label={name} />}
      {url && isAudio(type) && <audio src={url} controls aria-label={name} />}
      {error !== undefined && <Failure error={error} />}
      <figcaption>
        <span>
          {name} · {type} · {bytes(part.size)}
        </span>
        {shown && !show && (
          <Button small onClick={() => setShow(true)}>
            {text.show}
          </Button>
        )}
        <Save name={name} load={() => read(part)} />
      </figcaption>
    </figure>
  );
}

/** Only links of this gateway are followed. */
function local(url: string | undefined): string | undefined {
  const path = url && URL.canParse(url, location.href) ? new URL(url, location.href).pathname : "";
  return /^\/blobs\/[\w-]+$/.test(path) ? path : undefined;
}

async function read(part: Part, type = "application/octet-stream"): Promise<Blob> {
  if (part.data !== undefined) {
    const raw = atob(part.data);
    return new Blob([Uint8Array.from(raw, (character) => character.charCodeAt(0))], { type });
  }
  const response = await fetch(local(part.url)!, { credentials: "omit", referrerPolicy: "no-referrer" });
  if (!response.ok) throw new Error(text.lostPart);
  return new Blob([await response.arrayBuffer()], { type });
}

function useObjectURL(part: Part, wanted: boolean): [string | undefined, unknown] {
  const [state, setState] = useState<{ url?: string; error?: unknown }>({});
  useEffect(() => {
    if (!wanted) return;
    let over = false;
    let url: string | undefined;
    read(part, part.mime_type).then(
      (blob) => {
        if (over) return;
        url = URL.createObjectURL(blob);
        setState({ url });
      },
      (error: unknown) => over || setState({ error }),
    );
    return () => {
      over = true;
      if (url) URL.revokeObjectURL(url);
    };
  }, [part, wanted]);
  return [state.url, state.error];
}

function Save({ name, load }: { name: string; load: () => Promise<Blob> }) {
  return (
    <Button
      small
      look="plain"
      onClick={async () => {
        const url = URL.createObjectURL(await load());
        const link = document.createElement("a");
        link.href = url;
        link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, "_");
        link.click();
        setTimeout(() => URL.revokeObjectURL(url), 1000);
      }}
    >
      {text.download}
    </Button>
  );
}
