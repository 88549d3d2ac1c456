// Markdown of models. What is shown has passed DOMPurify, and has no pictures: their addresses could carry data away.

import DOMPurify, { type Config } from "dompurify";
import { Marked } from "marked";
import { useLayoutEffect, useRef } from "preact/hooks";

const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => signs[sign]!);
}

const longest = 50_000; // characters that are read as Markdown
const longestMarked = 5_000; // of a paragraph in which * and _ mean something: the parser tries each with each
const mostCells = 10_000; // of a table: a short row has all cells of the first
const tooDeep = /^(?:[ \t]*>){50}/;

function cellsOf(text: string): number {
  const end = text.indexOf("\n\n");
  const lines = (end < 0 ? text : text.slice(0, end)).split("\n");
  return lines[0]!.split("|").length * lines.length;
}

/**
 * HTML within Markdown stays the text that it is. Pictures become their addresses. What would take the parser long
 * stays text, too: undefined is no token, false leaves it to the parser.
 */
const marked = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  tokenizer: {
    emStrong: (_text, paragraph) => (paragraph.length > longestMarked ? undefined : false),
    table: (text) => (cellsOf(text) > mostCells ? undefined : false),
    blockquote: (text) => (tooDeep.test(text) ? undefined : false),
  },
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

/** render returns the text as elements, or as it is if it nests too deeply. Headings become smaller than the page's. */
function render(text: string): DocumentFragment | string {
  if (text.length > longest) return text;
  let html = "";
  try {
    html = marked.parse(text) as string;
  } catch {
    return text;
  }
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
