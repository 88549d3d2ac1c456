// The same call in the words of other programs. Arguments are a person's or a device's text: every form quotes them,
// and what is not ASCII is escaped, so that a terminal shows what it runs.

export interface Call {
  tool: string;
  session: string | undefined;
  args: Record<string, unknown>;
  /** In ms. */
  timeout: number | undefined;
  /** How long the call may wait for a sleeping device, in ms. */
  queue: number | undefined;
}

const escaped = (text: string) =>
  text.replace(/[^\x20-\x7e]/g, (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"));
const json = (value: unknown) => escaped(JSON.stringify(value));
const shell = (text: string) => (/^[\w./:@=,+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function addressOf({ tool, session }: Call): string {
  const name = encodeURIComponent(tool);
  return session ? `/api/sessions/${encodeURIComponent(session)}/tools/${name}/call` : `/api/tools/${name}/call`;
}

function bodyOf({ args, timeout, queue }: Call): object {
  return { args, ...(timeout && { timeout_ms: timeout }), ...(queue && { queue: { ttl_ms: queue } }) };
}

type Form = (call: Call, origin: string) => string;

export const forms: Record<"curl" | "cli" | "typescript" | "python" | "mcp", Form> = {
  curl: (call, origin) =>
    [
      `curl -X POST ${shell(origin + addressOf(call))}`,
      `-H "Authorization: Bearer $FARHAND_TOKEN"`,
      `-H 'Content-Type: application/json'`,
      `-d ${shell(json(bodyOf(call)))}`,
    ].join(" \\\n  "),

  cli: ({ tool, session, args, timeout, queue }, origin) =>
    [
      `farhand call ${shell(tool)} ${shell(json(args))}`,
      `--server ${shell(origin)}`,
      ...(session ? [`--session ${shell(session)}`] : []),
      ...(timeout ? [`--timeout ${timeout}ms`] : []),
      ...(queue ? [`--queue ${queue}ms`] : []),
    ].join(" \\\n  "),

  typescript: (call, origin) => `const response = await fetch(${json(origin + addressOf(call))}, {
  method: "POST",
  headers: {
    Authorization: \`Bearer \${process.env.FARHAND_TOKEN}\`,
    "Content-Type": "application/json",
  },
  body: JSON.stringify(${json(bodyOf(call))}),
});
const answer = await response.json();
if (!response.ok) throw new Error(answer.detail);
console.log(answer.output);`,

  python: (call, origin) => `import json, os, urllib.request

request = urllib.request.Request(
    ${json(origin + addressOf(call))},
    data=${json(json(bodyOf(call)))}.encode(),
    headers={
        "Authorization": "Bearer " + os.environ["FARHAND_TOKEN"],
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["output"])`,

  mcp: ({ tool, session, args, queue }, origin) => {
    const meta = queue && { _meta: { "farhand/queue": { ttl_ms: queue } } };
    const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: tool, arguments: args, ...meta } };
    return [
      `curl -X POST ${shell(origin + "/mcp" + (session ? "/sessions/" + encodeURIComponent(session) : ""))}`,
      `-H "Authorization: Bearer $FARHAND_TOKEN"`,
      `-H 'Content-Type: application/json'`,
      `-H 'Accept: application/json, text/event-stream'`,
      `-d ${shell(json(body))}`,
    ].join(" \\\n  ");
  },
};
