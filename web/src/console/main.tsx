import { render } from "preact";
import "../ui/base.css";
import { App } from "./shell";

render(<App />, document.getElementById("page")!);

// A part of the page that the gateway no longer has, since it was updated: load the page again, once.
const reloaded = "farhand.reloaded";
addEventListener("vite:preloadError", (event) => {
  if (Date.now() - Number(sessionStorage.getItem(reloaded)) < 10_000) return;
  event.preventDefault();
  sessionStorage.setItem(reloaded, String(Date.now()));
  location.reload();
});
