import { render } from "preact";
import "../ui/base.css";
import { App } from "./app";
import { stopped } from "./kept";
import { start } from "./link";
import { followPowers } from "./powers";
import { keepAwake } from "./tools/body";
import { install } from "./worker";

keepAwake();
install();
render(<App />, document.getElementById("page")!);
void followPowers().then(() => {
  if (!stopped.value) void start();
});
