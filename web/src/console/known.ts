// Sessions with their tools, of devices that are connected or sleep.

import { path, Problem } from "../api/client";
import type { Session, ToolList } from "../api/types";
import { client } from "./session";

/** A session. Its device sleeps if it has last_seen: it is known and not connected. */
export type Known = Session & { last_seen?: string };

/** readSession reads a session, or what the gateway remembers of it if its device sleeps. */
export async function readSession(id: string, signal: AbortSignal): Promise<Known> {
  let found: Session | undefined;
  let failure: unknown;
  try {
    found = await client.get<Session>(path("api", "sessions", id), { signal });
    if (found.connected) return found;
  } catch (error) {
    if (!(error instanceof Problem && [404, 409].includes(error.status))) throw error;
    failure = error;
  }
  const query = { session_id: id, presence: "sleeping" };
  const { tools } = await client.get<ToolList>("/api/tools", { signal, query });
  const [first] = tools;
  if (!first) {
    if (found) return found;
    throw failure;
  }
  const { device_id = "", device_name, user_id, labels, last_seen = "" } = first;
  return {
    session_id: id,
    connected: false,
    online: false,
    created_at: last_seen,
    last_activity: last_seen,
    message_count: 0,
    device_id,
    ...(device_name && { device_name }),
    ...(user_id && { user_id }),
    ...(labels && { labels }),
    ...found,
    last_seen,
    tools,
  };
}
