// Drives a tab of Firefox: reads a command from each line, and writes its answer as a line. Ends with its input.
import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

const [executablePath, userDataDir] = process.argv.slice(2);
const browser = await puppeteer.launch({
  browser: "firefox", executablePath, userDataDir,
  extraPrefsFirefox: {
    "intl.accept_languages": "en-US",
    "media.navigator.streams.fake": true,
    "ui.prefersReducedMotion": 1,
  },
});
const page = await browser.newPage(); // The first tab has no focus.
let noises = [];
page.on("pageerror", (error) => noises.push(`exception: ${error.stack ?? error}`));
page.on("console", (message) => {
  const text = `${message.type()}: ${message.text()}`;
  if (message.type() === "error" || text.includes("farhand-injected")) noises.push(text);
});

const commands = {
  prelude: (source) => page.evaluateOnNewDocument(source),
  navigate: (url) => page.goto(url),
  reload: () => page.reload(),
  evaluate: (expression) => page.evaluate(expression),
  click: (x, y) => page.mouse.click(x, y),
  resize: (width, height) => page.setViewport({ width, height }),
  screenshot: () => page.screenshot({ encoding: "base64" }),
  locate: (latitude, longitude) => page.setGeolocation({ latitude, longitude, accuracy: 25 }),
  permit: (origin, name, state) =>
    browser.defaultBrowserContext().setPermission(origin, { permission: { name }, state }),
};
const values = new Set(["evaluate", "screenshot"]); // commands with a value

for await (const line of createInterface({ input: process.stdin })) {
  const { command, args } = JSON.parse(line);
  const answer = {};
  try {
    const value = await commands[command](...(args ?? []));
    if (values.has(command)) answer.value = value ?? null;
  } catch (error) {
    answer.error = String(error);
  }
  [answer.noises, noises] = [noises, []];
  console.log(JSON.stringify(answer));
}
await browser.close();
