// Uses what the README only names, and prints what came of it.
import * as farhand from "@farhand/client";

const { ApprovalDeniedError, Farhand, InvalidArgumentsError, NotFoundError, UnauthenticatedError } = farhand;

const url = process.env.FARHAND_URL;
const admin = new Farhand(url, { token: () => process.env.FARHAND_TOKEN });
const caller = new Farhand(url, { token: process.env.CALLER_TOKEN });
const kitchen = { labels: { room: "kitchen" } };
async function all(list) {
  const rows = [];
  for await (const row of list) rows.push(row);
  return rows;
}
async function failure(promise, type) {
  const error = await promise.then(() => "no error", (error) => error);
  return error instanceof type ? `${error.name} ${error.code} ${error.dispatched} ${error.message}` : error;
}
const say = (what, ...found) => console.log(`${what}:`, ...found);

const rung = await admin.call("ring", {}, kitchen);
say("labels", rung.output, (await admin.call("ring", {}, { select: "any" })).deviceId);
const tools = await all(admin.tools({ ...kitchen, name: "ring" }));
say("lists", (await all(admin.sessions(kitchen))).length, tools.length);
say("session", (await admin.session("phone")).tools.length);
say("me", (await caller.me()).roles, (await caller.limits()).max_wait_ms);
say("structured", (await admin.call("measure", { to: 2 }, kitchen)).structured.measured);
say("arguments", await failure(admin.call("measure", { to: "x" }, kitchen), InvalidArgumentsError));
say("unknown", await failure(admin.call("nothing"), NotFoundError));
say("token", await failure(new Farhand(url, { token: "wrong" }).call("ring"), UnauthenticatedError));

const waiting = await caller.start("unlock", { door: "front" }, kitchen);
say("decided", (await admin.approvals.decide(waiting.approvalId, "deny", { comment: "not today" })).state);
say("denied", await failure(waiting.result(), ApprovalDeniedError));
const granted = await caller.start("unlock", { door: "back" }, kitchen);
await admin.approvals.decide(granted.approvalId, "allow-always", { scope: "tool", expiresIn: 60_000 });
say("granted", (await granted.result()).output, (await caller.call("unlock", { door: "side" }, kitchen)).output);
const [grant] = await admin.approvals.grants();
await admin.approvals.revoke(grant.id);
say("revoked", (await admin.approvals.grants()).length);

const long = await admin.start("wait", {}, kitchen);
for await (const event of long) if (event.type === "progress") break; // it runs
say("same", (await admin.start("wait", {}, { ...kitchen, idempotencyKey: "k1" })).id ===
  (await admin.start("wait", {}, { ...kitchen, idempotencyKey: "k1" })).id);
say("cancelled", (await admin.pending(long.id).cancel()).state, (await long.record()).dispatched);
say("calls", (await all(admin.calls({ tool: "measure" })))[0].tool);

const conversation = admin.conversation("phone");
say("answer", (await conversation.ask("Hello")).full_response);
for await (const event of conversation.regenerate()) if (event.type === "done") say("again", event.full_response);
say("transcript", (await conversation.transcript({ limit: 1 })).messages[0].content, await conversation.abort());
say("stopped", await failure(conversation.ask("Hold", { signal: AbortSignal.timeout(500) }), DOMException));
say("request", (await admin.request("GET", "/api/sessions/phone/state")).session_id);
