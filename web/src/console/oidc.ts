// Sign-in with an identity provider: authorization code with PKCE. The exchange runs in the page, and the gateway
// never sees the code or the refresh token. This part is loaded when a person signs in or a token is renewed.

import * as oauth from "oauth4webapi";
import type { OIDC } from "../api/types";
import { words } from "../words/en";
import { base, signInPath } from "./place";

/** What the provider gave. Times are those of Date.now(). */
export interface Tokens {
  /** The credential for the gateway. */
  token: string;
  refresh?: string | undefined;
  /** When it ends, and when to renew it before. Absent: the provider does not say. */
  ends?: number | undefined;
  renew?: number | undefined;
}

/** What this tab remembers while the person is at the provider. */
interface Pending {
  state: string;
  nonce: string;
  verifier: string;
  /** Where the person was. */
  view: string;
}

/** The provider rejects the refresh token: the person must sign in again. */
export class Ended extends Error {}

const key = "farhand.oidc.pending";
const limit = 10_000; // ms that the provider has for an answer
const margin = 60_000; // ms before its end that a token is renewed, at most a quarter of its life

const redirect = () => location.origin + base + signInPath;

/** begin leaves for the provider. */
export async function begin(how: OIDC): Promise<void> {
  const pending: Pending = {
    state: oauth.generateRandomState(),
    nonce: oauth.generateRandomNonce(),
    verifier: oauth.generateRandomCodeVerifier(),
    view: location.pathname + location.search,
  };
  const to = new URL(how.provider.authorization_endpoint);
  const query = {
    response_type: "code",
    client_id: how.client_id,
    redirect_uri: redirect(),
    scope: how.scope,
    state: pending.state,
    nonce: pending.nonce,
    code_challenge: await oauth.calculatePKCECodeChallenge(pending.verifier),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(query)) to.searchParams.set(name, value);
  // A fragment is not sent to servers, so no log of a proxy has the code.
  if (how.provider.response_modes_supported?.includes("fragment")) to.searchParams.set("response_mode", "fragment");
  sessionStorage.setItem(key, JSON.stringify(pending));
  location.assign(to);
}

/** takePending returns the sign-in that this tab began, and forgets it: an answer counts once. */
export function takePending(): Pending | undefined {
  const text = sessionStorage.getItem(key);
  sessionStorage.removeItem(key);
  return text === null ? undefined : (JSON.parse(text) as Pending);
}

/** finish exchanges the provider's answer for tokens. It rejects with what to tell the person. */
export async function finish(how: OIDC, answer: URLSearchParams, pending: Pending | undefined): Promise<Tokens> {
  if (!pending) throw new Error(words.signIn.oidc.invalid(hostOf(how)));
  return explained(how, async () => {
    const { provider, client, options } = parties(how);
    const code = oauth.validateAuthResponse(provider, client, answer, pending.state);
    const response = await oauth.authorizationCodeGrantRequest(
      provider, client, oauth.None(), code, redirect(), pending.verifier, options,
    );
    return tokens(how, await oauth.processAuthorizationCodeResponse(provider, client, response, {
      expectedNonce: pending.nonce,
      requireIdToken: true,
    }));
  });
}

/**
 * renew gets new tokens. It rejects with Ended, or with why to try again later. Providers need not send a new ID token
 * (OpenID Connect Core, 12.2): then the old token stays, and is renewed no more.
 */
export async function renew(how: OIDC, refresh: string, old: Tokens): Promise<Tokens> {
  return explained(how, async () => {
    const { provider, client, options } = parties(how);
    const response = await oauth.refreshTokenGrantRequest(provider, client, oauth.None(), refresh, options);
    const renewed = await oauth.processRefreshTokenResponse(provider, client, response).catch((error: unknown) => {
      if (error instanceof oauth.ResponseBodyError && error.error === "invalid_grant") throw new Ended();
      throw error;
    });
    if (!renewed[how.token]) return { ...old, refresh: renewed.refresh_token ?? refresh, renew: undefined };
    return { refresh, ...tokens(how, renewed) };
  });
}

/** revoke tells the provider that a refresh token is not used any more, if it wants to know. */
export async function revoke(how: OIDC, refresh: string): Promise<void> {
  if (!how.provider.revocation_endpoint) return;
  const { provider, client, options } = parties(how);
  await oauth.revocationRequest(provider, client, oauth.None(), refresh, options);
}

export const hostOf = (how: OIDC): string => new URL(how.provider.issuer).host;

function parties({ provider, client_id }: OIDC) {
  return {
    provider: provider as oauth.AuthorizationServer,
    client: { client_id },
    options: {
      signal: () => AbortSignal.timeout(limit),
      [oauth.allowInsecureRequests]: provider.issuer.startsWith("http:"), // the gateway takes that on localhost only
    },
  };
}

function tokens(how: OIDC, given: oauth.TokenEndpointResponse): Tokens {
  const token = given[how.token];
  if (!token) throw new Ended();
  const now = Date.now();
  const claims = how.token === "id_token" ? oauth.getValidatedIdTokenClaims(given) : undefined;
  const seconds = claims ? claims.exp - claims.iat : given.expires_in; // whatever the time is on this machine
  const life = seconds === undefined ? undefined : seconds * 1000;
  return {
    token,
    ...(given.refresh_token ? { refresh: given.refresh_token } : {}),
    ...(life === undefined ? {} : { ends: now + life, renew: now + life - Math.min(margin, life / 4) }),
  };
}

/** explained turns what the library throws into words for a person. The provider's own text is text, never markup. */
async function explained<T>(how: OIDC, run: () => Promise<T>): Promise<T> {
  const { says, silent, invalid } = words.signIn.oidc;
  try {
    return await run();
  } catch (error) {
    if (error instanceof Ended) throw error;
    if (error instanceof oauth.AuthorizationResponseError || error instanceof oauth.ResponseBodyError) {
      throw new Error(says(hostOf(how), (error.error_description || error.error).slice(0, 300)));
    }
    // The library's own errors have a code; the browser's for a network that fails, or an answer that is late, do not.
    const away = error instanceof DOMException || (error instanceof TypeError && !("code" in error));
    throw new Error((away ? silent : invalid)(hostOf(how)));
  }
}
