// Markdown of models. What is shown has passed DOMPurify, and has no pictures: their addresses could carry data away.

import DOMPurify, { type Config } from "dompurify";
import { Marked } from "marked";
import { useLayoutEffect, useRef } from "preact/hooks";

const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => signs[sign]!);
}

/** HTML within Markdown stays the text that it is. Pictures become their addresses. */
const marked = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ raw }) => escaped(raw),
  },
});

const allowed: Config = {
  ALLOWED_TAGS: [
    "p", "br", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6",
    "hr", "table", "thead", "tbody", "tr", "th", "td", "a", "input",
  ],
  ALLOWED_ATTR: ["href", "start", "type", "checked", "disabled"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const levels: Record<string, string> = { H1: "h4", H2: "h4", H3: "h5", H4: "h5", H5: "h6", H6: "h6" };

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node instanceof HTMLAnchorElement) {
    node.target = "_blank";
    node.rel = "noopener noreferrer nofollow";
    node.title = node.href;
  }
  if (node instanceof HTMLInputElement && node.type !== "checkbox") node.remove();
});

/** render returns the text as elements. Headings become smaller than those of the page. */
function render(text: string): DocumentFragment {
  const html = marked.parse(text) as string;
  const clean = DOMPurify.sanitize(html, { ...allowed, RETURN_DOM_FRAGMENT: true });
  for (const heading of clean.querySelectorAll("h1,h2,h3,h4,h5,h6")) {
    const smaller = document.createElement(levels[heading.tagName] ?? "h6");
    smaller.append(...heading.childNodes);
    heading.replaceWith(smaller);
  }
  return clean;
}

export function Markdown({ text }: { text: string }) {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => ref.current!.replaceChildren(render(text)), [text]);
  return <div class="markdown" ref={ref} />;
}
