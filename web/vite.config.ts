import { defineConfig } from "vite";

// Two pages share their code: console/index.html and device/index.html. device/canvas.html is the frame in which the
// device page shows what agents present. The gateway serves dist/ under the same paths,
// and hashes are part of all names below /assets/, so browsers may keep those files for ever.
export default defineConfig({
  base: "/",
  publicDir: "public",
  resolve: {
    alias: {
      react: "preact/compat",
      "react-dom": "preact/compat",
      "react/jsx-runtime": "preact/jsx-runtime",
      "@farhand/device": new URL("../sdk/typescript/src/index.ts", import.meta.url).pathname,
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: "chrome123", // which knows light-dark()
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rollupOptions: {
      input: { console: "console/index.html", device: "device/index.html", canvas: "device/canvas.html" },
      // "use client" of packages is for servers that render React.
      onwarn: (warning, warn) => warning.code === "MODULE_LEVEL_DIRECTIVE" || warn(warning),
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8080", "/ws": { target: "ws://127.0.0.1:8080", ws: true } } },
});
