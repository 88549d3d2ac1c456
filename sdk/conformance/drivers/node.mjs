// node node.mjs SDK STORE: commands come on stdin, reports go to stdout, one JSON object a line.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { drive } from "./driver.mjs";

const [sdkPath, storePath] = process.argv.slice(2);
const sdk = await import(pathToFileURL(sdkPath));
const run = drive(sdk, (report) => process.stdout.write(JSON.stringify(report) + "\n"),
  (kept) => kept ? sdk.fileStore(storePath) : sdk.memoryStore());
createInterface({ input: process.stdin })
  .on("line", (line) => run(JSON.parse(line)))
  .on("close", () => process.exit(0));
