/**
 * Makes a Node.js program a device of a Farhand gateway. Start at Device.
 *
 * @packageDocumentation
 */
import { DeviceCore } from "./device.js";
import { node } from "./node-platform.js";
import type { DeviceOptions } from "./options.js";
import { pairWith, type Credential, type PairOptions } from "./pair.js";

/** Device is one device: it connects to a gateway, offers tools, and answers the calls to them. */
export class Device extends DeviceCore {
  /** Makes a device for the gateway at address, a ws, wss, http or https URL. It does not connect; start does. */
  constructor(address: string | URL, options: DeviceOptions = {}) {
    super(address, options, node);
  }
}

/**
 * Returns the credential of the store, or pairs the device with the gateway: it makes a key, shows a code, and waits
 * for an approver. An expired code is replaced by a new one. The error is a FarhandError; its code is `rejected` if the
 * approver did not want the device.
 */
export const pair = (address: string | URL, options: PairOptions): Promise<Credential> =>
  pairWith(node, address, options);

export * from "./common.js";
export { fileStore } from "./file-store.js";
