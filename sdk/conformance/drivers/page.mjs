// The page of the driver: the runner calls command, and gets reports by the binding `report`.
import * as sdk from "/sdk/index.js";
import { drive } from "./driver.mjs";

window.command = drive(sdk, (report) => window.report(JSON.stringify(report)),
  (kept) => kept ? sdk.indexedDBStore("driver") : sdk.memoryStore());
window.report("loaded");
