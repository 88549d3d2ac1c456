import { FarhandError } from "./errors.js";
import { number, text } from "./frames.js";
import { Address } from "./http.js";
import { sleep } from "./pace.js";
import type { Platform } from "./platform.js";
import type { Store } from "./store.js";

/** Credential is the credential of a paired device. It is a secret: its holder can act as the device. */
export interface Credential {
  /** The bearer token, fhd_…. */
  readonly token: string;
  readonly deviceId: string;
  /** Signs connections. Without it the token alone is enough. */
  readonly key?: CryptoKey;
}

export interface PairOptions {
  /** If empty, the gateway makes one. */
  deviceId?: string;
  /** For the approver. */
  deviceName?: string;
  /** For the approver. */
  platform?: string;
  /** Names of tools that the device wants to offer. */
  tools?: readonly string[];
  /**
   * Shows a code to a person, who enters it where pairings are approved, before it expires. It is called once for each
   * code.
   */
  show: (code: string, expires: Date) => void;
  /** Keeps the credential. */
  store?: Store;
  /** Ends the wait for an approver. */
  signal?: AbortSignal;
}

const kept = "credential";

interface Saved {
  token: string;
  deviceId: string;
  /** A key in a browser, its seed in base64url elsewhere. */
  key?: CryptoKey | string;
}

/** Returns the credential that a store keeps, undefined if there is none. */
export async function storedCredential(store: Store): Promise<Credential | undefined> {
  const saved = (await store.get(kept)) as Saved | undefined;
  if (!saved) return undefined;
  const key = typeof saved.key === "string" ? await keyOf(saved.key) : saved.key;
  return { token: saved.token, deviceId: saved.deviceId, ...(key && { key }) };
}

/** Forgets the credential of a store, for a device that is to be paired again. */
export const forgetCredential = (store: Store): Promise<void> => store.delete(kept);

export async function pairWith(platform: Platform, address: string | URL, o: PairOptions): Promise<Credential> {
  const before = o.store && (await storedCredential(o.store));
  if (before) return before;
  const gateway = new Address(address);
  const pair = await makeKey(!platform.keepsKeys);
  let deviceId = o.deviceId;
  for (;;) {
    const asked = await gateway.post(
      "/pair",
      {
        device_id: deviceId, device_name: o.deviceName, platform: o.platform ?? platform.name, tools: o.tools ?? [],
        ...(pair && { public_key: base64url(await crypto.subtle.exportKey("raw", pair.publicKey)) }),
      },
      "",
      o.signal,
    );
    deviceId = text(asked["device_id"]); // a further request is for the same device
    o.show(text(asked["code"]), new Date(Date.now() + number(asked["expires_in"]) * 1000));
    const token = await decision(gateway, asked, o.signal);
    if (!token) continue; // the code has expired
    const credential = { token, deviceId, ...(pair && { key: pair.privateKey }) };
    await o.store?.set(kept, {
      ...credential, ...(pair && !platform.keepsKeys && { key: await seedOf(pair.privateKey) }),
    } satisfies Saved);
    return credential;
  }
}

/** Waits for the approver. It returns the credential's token, undefined if the code expired. */
async function decision(gateway: Address, asked: Record<string, unknown>, signal?: AbortSignal,
): Promise<string | undefined> {
  const interval = Math.min(Math.max(number(asked["interval"]), 1), 60) * 1000;
  for (;;) {
    await sleep(interval, signal);
    let answer: Record<string, unknown>;
    try {
      answer = await gateway.post("/pair/status", { secret: asked["secret"] }, "", signal);
    } catch (error) {
      if (!(error instanceof FarhandError)) throw error;
      if (error.status === 404) return undefined;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      continue; // the gateway cannot be reached; the request may still be approved
    }
    if (answer["status"] === "rejected") throw new FarhandError("rejected", "an approver rejected the device");
    if (answer["status"] === "approved") return text(answer["credential"]);
  }
}

/** Returns what a paired device proves with that it has its key: nonce.signature. */
export async function sign(gateway: Address, { token, deviceId, key }: Credential, signal?: AbortSignal,
): Promise<string> {
  if (!key) return "";
  const nonce = text((await gateway.post("/pair/challenge", {}, token, signal))["nonce"]);
  const message = new TextEncoder().encode(`farhand-device-v1\n${nonce}\n${deviceId}`);
  return `${nonce}.${base64url(await crypto.subtle.sign("Ed25519", key, message))}`;
}

/** Makes an Ed25519 key. Undefined: old browsers and insecure pages cannot. */
async function makeKey(extractable: boolean): Promise<CryptoKeyPair | undefined> {
  try {
    return (await crypto.subtle.generateKey("Ed25519", extractable, ["sign", "verify"])) as CryptoKeyPair;
  } catch {
    return undefined;
  }
}

// PKCS #8 of an Ed25519 key is this prefix and the seed (RFC 8410).
const pkcs8 = Uint8Array.of(0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20);

const seedOf = async (key: CryptoKey): Promise<string> =>
  base64url((await crypto.subtle.exportKey("pkcs8", key)).slice(pkcs8.length));

async function keyOf(seed: string): Promise<CryptoKey> {
  const raw = Uint8Array.from(atob(seed.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const whole = new Uint8Array([...pkcs8, ...raw]);
  return crypto.subtle.importKey("pkcs8", whole, "Ed25519", true, ["sign"]);
}

const base64url = (data: ArrayBuffer): string =>
  btoa(String.fromCharCode(...new Uint8Array(data))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
