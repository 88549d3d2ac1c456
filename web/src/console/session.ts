import { signal } from "@preact/signals";
import { Client } from "../api/client";
import type { Me } from "../api/types";

const key = "farhand.token";

/** undefined: not known yet. null: sign in. */
export const me = signal<Me | null | undefined>(undefined);
export const signInFailed = signal(false);

export const client = new Client({
  token: () => sessionStorage.getItem(key) ?? "",
  rejected: () => {
    signInFailed.value = sessionStorage.getItem(key) !== null;
    sessionStorage.removeItem(key);
    me.value = null;
  },
});

/** start asks the gateway who this page is. */
export async function start(): Promise<void> {
  me.value = await client.get<Me>("/api/me");
}

export async function signIn(token: string): Promise<void> {
  sessionStorage.setItem(key, token.trim());
  signInFailed.value = false;
  await start();
}

/** Whether there is a credential to sign out with. */
export const signedIn = (): boolean => sessionStorage.getItem(key) !== null;

export function signOut(): void {
  sessionStorage.removeItem(key);
  signInFailed.value = false;
  me.value = null;
}

export function may(role: "caller" | "approver" | "admin"): boolean {
  const roles = me.value?.roles ?? [];
  return roles.includes(role) || roles.includes("admin");
}
