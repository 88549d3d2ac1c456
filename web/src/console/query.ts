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

/** Addresses of views, relative to the console. */
export const to = {
  device: (session: string) => "/devices/" + encodeURIComponent(session),
  tool: (session: string | undefined, tool: string) =>
    (session ? to.device(session) : "") + "/tools/" + encodeURIComponent(tool),
  call: (id: string) => "/calls/" + encodeURIComponent(id),
  calls: (filters: Record<string, string>) => "/calls?" + new URLSearchParams(filters).toString(),
  approval: (id: string) => "/approvals/" + encodeURIComponent(id),
  chat: (session: string) => "/chat/" + encodeURIComponent(session),
};
