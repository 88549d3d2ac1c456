import { createContext, domToBlob } from "modern-screenshot";

const longest = 2000; // pixels of the picture's longer side

/** Draws the document. Frames in it, and pictures of other sites, stay empty: browsers do not give them away. */
export async function picture(quality: number): Promise<Blob> {
  const { documentElement: root, body } = document;
  const width = root.clientWidth;
  const height = Math.max(root.clientHeight, Math.min(body.scrollHeight, longest));
  const context = await createContext(body, {
    type: "image/jpeg", quality, width, height, scale: Math.min(1, longest / Math.max(width, height)),
    backgroundColor: getComputedStyle(body).backgroundColor,
    filter: (node) => !(node instanceof HTMLIFrameElement),
    font: false,
  });
  // It would look up default styles in a frame, which an opaque origin cannot read. Without them it keeps all styles.
  context.sandbox = document.createElement("iframe"); // not connected: it has no window
  return domToBlob(context);
}
