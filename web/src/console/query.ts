import { useSearchParams } from "wouter-preact";

/** useQuery holds what a view shows in its address, so that a link shows the same. */
export function useQuery(): [(name: string) => string, (change: Record<string, string>) => void] {
  const [params, setParams] = useSearchParams();
  const set = (change: Record<string, string>) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(change)) {
          if (value) after.set(name, value);
          else after.delete(name);
        }
        return after;
      },
      { replace: true },
    );
  return [(name) => params.get(name) ?? "", set];
}

/** A part of an address. The router decodes addresses once, and would take a % for the beginning of an escape. */
const part = (name: string) => encodeURIComponent(name).replaceAll("%25", "%2525");

/** The name in a part of an address. Addresses are typed by people, too. */
export function nameIn(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Addresses of views, relative to the console. */
export const to = {
  device: (session: string) => "/devices/" + part(session),
  tool: (session: string | undefined, tool: string) =>
    (session ? to.device(session) : "") + "/tools/" + part(tool),
  call: (id: string) => "/calls/" + part(id),
  calls: (filters: Record<string, string>) => "/calls?" + new URLSearchParams(filters).toString(),
  approval: (id: string) => "/approvals/" + part(id),
  chat: (session: string) => "/chat/" + part(session),
};
