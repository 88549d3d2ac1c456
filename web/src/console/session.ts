import { signal } from "@preact/signals";
import { Client, Problem } from "../api/client";
import type { Me, OIDC, SignIn } from "../api/types";
import { words } from "../words/en";
import type { Tokens } from "./oidc";
import { base, signInPath } from "./place";

const key = "farhand.token";
const renewalKey = "farhand.oidc"; // Tokens without the token
const retry = 15_000; // ms after a renewal that failed

/** undefined: not known yet. null: sign in. */
export const me = signal<Me | null | undefined>(undefined);
/** Why the person must sign in, if there is a reason. */
export const signInNote = signal<string>("");

export const client = new Client({
  token: async () => {
    await renewed();
    return sessionStorage.getItem(key) ?? "";
  },
  rejected: (token) => {
    if (token !== (sessionStorage.getItem(key) ?? "")) return; // a late answer for the one before
    if (!signedIn()) {
      me.value = null;
      return;
    }
    const kept = renewal();
    const { ended, refused } = words.signIn.oidc;
    leave(!kept ? words.signIn.rejected : kept.ends !== undefined && Date.now() >= kept.ends ? ended : refused);
  },
});

const withoutToken = new Client({ token: () => "", rejected: () => {} });

/** howToSignIn asks the gateway for the identity provider, undefined if none is configured. */
export async function howToSignIn(): Promise<OIDC | undefined> {
  return (await withoutToken.get<SignIn>("/sign-in")).oidc;
}

/** What the provider sent the person back with. It leaves the address before anything else runs. */
let answer = takeAnswer();

function takeAnswer(): URLSearchParams | undefined {
  if (location.pathname !== base + signInPath) return undefined;
  const found = new URLSearchParams(location.hash.slice(1) || location.search);
  history.replaceState(null, "", base + "/");
  return found.size > 0 ? found : undefined;
}

/** start asks the gateway who this page is, after the sign-in from which the person comes, if any. */
export async function start(): Promise<void> {
  const back = answer;
  answer = undefined;
  if (back && !(await finish(back))) return;
  me.value = await client.get<Me>("/api/me").catch((error: unknown) => {
    if (back && error instanceof Problem && error.status === 403) leave(words.signIn.oidc.noRights);
    throw error;
  });
}

/** finish ends a sign-in at the provider, and shows the address that it began at. */
async function finish(back: URLSearchParams): Promise<boolean> {
  const flow = await import("./oidc");
  const pending = flow.takePending();
  if (!pending && signedIn()) return true; // an old answer, or a link, ends no session
  if (pending) history.replaceState(null, "", pending.view);
  try {
    const how = await howToSignIn();
    if (!how) throw new Error(words.signIn.oidc.off);
    keep(await flow.finish(how, back, pending));
    return true;
  } catch (error) {
    leave(error instanceof flow.Ended ? words.signIn.oidc.noToken : error instanceof Error ? error.message : "");
    return false;
  }
}

/** signInWith leaves for the identity provider. */
export async function signInWith(how: OIDC): Promise<void> {
  await (await import("./oidc")).begin(how);
}

export async function signIn(token: string): Promise<void> {
  forget();
  sessionStorage.setItem(key, token.trim());
  signInNote.value = "";
  await start();
}

/** Whether there is a credential to sign out with. */
export const signedIn = (): boolean => sessionStorage.getItem(key) !== null;

export function signOut(): void {
  leave("");
}

/** revoke tells the provider that a refresh token is not used any more. If that fails, it expires unused. */
function revoke(refresh: string | undefined): void {
  if (refresh) void revoked(refresh).catch(() => {});
}

async function revoked(refresh: string): Promise<void> {
  const how = await howToSignIn();
  if (how) await (await import("./oidc")).revoke(how, refresh);
}

/** leave forgets the credential, and asks the person to sign in. */
function leave(note: string): void {
  revoke(renewal()?.refresh);
  forget();
  signInNote.value = note;
  me.value = null;
}

function forget(): void {
  sessionStorage.removeItem(key);
  sessionStorage.removeItem(renewalKey);
}

type Renewal = Omit<Tokens, "token">;

function keep({ token, ...rest }: Tokens): void {
  sessionStorage.setItem(key, token);
  sessionStorage.setItem(renewalKey, JSON.stringify(rest));
}

function renewal(): Renewal | undefined {
  const text = sessionStorage.getItem(renewalKey);
  return text === null ? undefined : (JSON.parse(text) as Renewal);
}

let renewing: Promise<void> | undefined;

/** renewed resolves when the token needs no renewal. Requests that come meanwhile wait for the same one. */
async function renewed(): Promise<void> {
  const kept = renewal();
  if (!kept?.refresh || kept.renew === undefined || Date.now() < kept.renew) return;
  await (renewing ??= renew(kept, kept.refresh).finally(() => (renewing = undefined)));
}

async function renew(kept: Renewal, refresh: string): Promise<void> {
  let flow: typeof import("./oidc") | undefined; // an update of the gateway may have removed it
  const current = () => renewal()?.refresh === refresh; // else the person has signed out meanwhile
  try {
    const how = await howToSignIn();
    flow = await import("./oidc");
    if (!how) throw new flow.Ended();
    const tokens = await flow.renew(how, refresh, { ...kept, token: sessionStorage.getItem(key) ?? "" });
    if (current()) keep(tokens);
    else revoke(tokens.refresh);
  } catch (error) {
    if (!current()) return;
    const past = Date.now() >= (kept.ends ?? 0);
    if (past && error instanceof Problem) throw error; // of the gateway: the provider may still renew the token
    // The policy of this page may not allow the provider. Signing in loads another.
    if (past || (flow && error instanceof flow.Ended)) {
      leave(words.signIn.oidc.ended);
      throw new Problem(401, "unauthenticated", words.signIn.oidc.ended);
    }
    sessionStorage.setItem(renewalKey, JSON.stringify({ ...kept, renew: Date.now() + retry }));
  }
}

/** Whether the page has an address that other devices cannot reach. */
export const loopback = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

export function may(role: "caller" | "approver" | "admin"): boolean {
  const roles = me.value?.roles ?? [];
  return roles.includes(role) || roles.includes("admin");
}
