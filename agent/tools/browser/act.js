function (what, text) {
  const el = this.nodeType === Node.ELEMENT_NODE ? this : this.parentElement;
  if (!el || !el.isConnected) return { gone: true };
  const tag = el.localName;
  const fail = (why) => ({ tag, failed: why });
  const done = { tag, failed: "" };
  const tellPage = (of) => {
    of.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    of.dispatchEvent(new Event("change", { bubbles: true }));
  };
  const choose = (list, option) => {
    if (list.disabled || option.disabled) return fail("is disabled");
    option.selected = true;
    tellPage(list);
    return done;
  };
  const field = tag === "input" || tag === "textarea";
  const disabled = el.disabled === true || el.getAttribute("aria-disabled") === "true";
  if (field && el.type === "file" && what !== "show") return fail("is a file upload, which is not supported");
  switch (what) {
    case "show":
      el.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      return done;
    case "usable":
      return disabled ? fail("is disabled") : done;
    case "choose": {
      const list = el.closest("select");
      return list ? choose(list, el) : fail("is not in a list");
    }
    case "focus":
      if (disabled) return fail("is disabled");
      el.focus();
      if (!el.matches(":focus-within")) return fail("does not accept text: use the ref of a text field");
      return done;
    case "fill":
      break;
    default:
      return fail("cannot do this act");
  }
  if (disabled) return fail("is disabled");
  if (el.readOnly === true) return fail("is read-only");
  if (tag === "select") {
    const plain = (s) => s.trim().toLowerCase();
    const options = [...el.options];
    const option = options.find((o) => o.value === text) || options.find((o) => plain(o.label) === plain(text));
    if (!option) return fail("has no such option; it has: " + options.slice(0, 30).map((o) => o.label.trim().slice(0, 60)).join(", "));
    return choose(el, option);
  }
  if (tag === "input" && (el.type === "checkbox" || el.type === "radio")) {
    const want = { true: true, on: true, false: false, off: false }[text.trim().toLowerCase()];
    if (want === undefined) return fail("must be filled with true or false");
    if (el.checked !== want) el.click();
    return el.checked === want ? done : fail("did not change");
  }
  if (field) {
    el.focus();
    el.value = text;
    tellPage(el);
    return el.value === text || el.type !== "number" && el.type !== "date" ? done : fail("does not accept this value");
  }
  if (el.isContentEditable) {
    el.focus();
    el.textContent = text;
    tellPage(el);
    return done;
  }
  return fail("cannot be filled: use the ref of a field");
}
