import type { Call } from "@farhand/device";
import { ask } from "../prompts";
import { lacks, using, without } from "../powers";
import { words } from "../../words/device";
import { pageTool, pause } from "./tool";

function locate(_: object, call: Call): Promise<object> {
  const found = (): Promise<GeolocationPosition> =>
    new Promise((resolve, reject) => {
      const signal = call.awaited();
      signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      navigator.geolocation.getCurrentPosition(resolve, (error) => {
        const denied = error.code === error.PERMISSION_DENIED;
        reject(denied ? new DOMException(error.message, "NotAllowedError") : new Error(`no position: ${error.message}`));
      }, { enableHighAccuracy: true, timeout: 25_000, maximumAge: 10_000 });
    });
  return using("geolocation", found).then(({ coords, timestamp }) => ({
    latitude: coords.latitude,
    longitude: coords.longitude,
    source: "browser",
    accuracy_m: coords.accuracy,
    ...(coords.altitude !== null && { altitude_m: coords.altitude }),
    ...(coords.speed !== null && { speed_m_s: coords.speed }),
    ...(coords.heading !== null && { heading_degrees: coords.heading }),
    at: new Date(timestamp).toISOString(),
  }));
}

type Axes = { x: number; y: number; z: number };
type Permitted = { requestPermission?: () => Promise<PermissionState> };

const motionFor = 1000; // ms
const firstMotion = 2000; // ms in which a sensor reports
const round = (value: number): number => Math.round(value * 1000) / 1000;

/** Some browsers ask the person, and iOS only within a tap. */
async function permitMotion(call: Call): Promise<void> {
  const request = (DeviceMotionEvent as unknown as Permitted).requestPermission?.bind(DeviceMotionEvent);
  if (!request) return;
  const { question, action } = words.tools.motion!;
  const state = await request().catch(() =>
    ask(call, { text: question!, choices: [{ label: action!, look: "first", run: request }] }));
  if (state !== "granted") throw new Error("the person or the browser did not allow motion sensors");
}

async function motion(_: object, call: Call): Promise<object> {
  await permitMotion(call);
  let [count, shake] = [0, 0];
  let gravity: Axes | undefined;
  let rotation: object | undefined;
  let orientation: object | undefined;
  const moved = ({ accelerationIncludingGravity: g, acceleration: a, rotationRate: r }: DeviceMotionEvent): void => {
    if (!g || g.x === null || g.y === null || g.z === null) return;
    count++;
    gravity = { x: round(g.x), y: round(g.y), z: round(g.z) };
    if (r?.alpha != null) rotation = { alpha: round(r.alpha), beta: round(r.beta ?? 0), gamma: round(r.gamma ?? 0) };
    if (a?.x != null) shake = Math.max(shake, Math.hypot(a.x, a.y ?? 0, a.z ?? 0));
  };
  const turned = ({ alpha, beta, gamma }: DeviceOrientationEvent): void => {
    if (beta === null) return;
    orientation = { alpha: alpha === null ? null : round(alpha), beta: round(beta), gamma: round(gamma ?? 0) };
  };
  addEventListener("devicemotion", moved);
  addEventListener("deviceorientation", turned);
  try {
    await pause(motionFor, call.awaited());
    if (count === 0) await pause(firstMotion - motionFor, call.awaited());
  } finally {
    removeEventListener("devicemotion", moved);
    removeEventListener("deviceorientation", turned);
  }
  if (!gravity && !orientation) {
    throw new Error("this device reports no motion: it has no sensor, or the page is in the background");
  }
  return {
    samples: count, acceleration_with_gravity: gravity, strongest_acceleration: round(shake),
    rotation_degrees_per_s: rotation, orientation_degrees: orientation,
  };
}

interface Battery {
  level: number;
  charging: boolean;
  chargingTime: number;
  dischargingTime: number;
}

type WithBattery = Navigator & { getBattery?: () => Promise<Battery> };

async function battery(): Promise<object> {
  const { level, charging, chargingTime, dischargingTime } = await (navigator as WithBattery).getBattery!();
  return {
    level, charging,
    ...(Number.isFinite(chargingTime) && chargingTime > 0 && { seconds_to_full: chargingTime }),
    ...(Number.isFinite(dischargingTime) && { seconds_left: dischargingTime }),
  };
}

export const sensorTools = [
  pageTool({
    name: "location_get",
    description: "Return the position of this device: latitude and longitude in degrees, accuracy in metres.",
    effect: "reads", confirm: true, timeout: 60_000,
  }, () => without("geolocation", "geolocation" in navigator), locate),
  pageTool({
    name: "motion",
    description: "Watch the motion sensors of this device for a second: acceleration (m/s²), rotation and orientation.",
    effect: "reads", timeout: 60_000,
  }, () => lacks("DeviceMotionEvent" in globalThis, true), motion),
  pageTool({
    name: "battery",
    description: "Return the charge of this device's battery, from 0 to 1, and whether it is charging.",
    effect: "reads",
  }, () => lacks("getBattery" in navigator, true), battery),
];
