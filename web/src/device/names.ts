import { words } from "../words/device";

const browsers: [RegExp, string][] = [
  [/\bEdgA?\//, "Edge"], [/\bOPR\//, "Opera"], [/\bSamsungBrowser\//, "Samsung Internet"],
  [/\b(Firefox|FxiOS)\//, "Firefox"], [/\b(Chrome|CriOS|HeadlessChrome)\//, "Chrome"], [/\bSafari\//, "Safari"],
];
const systems: [RegExp, string][] = [
  [/\bAndroid\b/, "Android"], [/\biPhone\b/, "iPhone"], [/\biPad\b/, "iPad"], [/\bWindows\b/, "Windows"],
  [/\bMac OS X\b/, "Mac"], [/\bCrOS\b/, "ChromeOS"], [/\bLinux\b/, "Linux"],
];

/** A name for this device, such as "Chrome on Android". */
export function suggestedName(): string {
  const find = (all: [RegExp, string][]) => all.find(([form]) => form.test(navigator.userAgent))?.[1];
  const [browser, system] = [find(browsers) ?? words.browsers.unknown, find(systems)];
  return system ? words.browsers.on(browser, system) : browser;
}
