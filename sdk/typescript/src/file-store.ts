import { mkdir, open, readFile, rename, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import type { Store } from "./store.js";

const spare = 1 << 20; // bytes of outdated lines, after which the file is made anew

/**
 * A store in a file that only its user can read, for one process at a time. Every change is a line at its end, which is
 * on the disk before the change counts; a broken last line, of a crash, is ignored.
 */
export function fileStore(path: string): Store {
  let opened: Promise<Log> | undefined;
  const use = (): Promise<Log> => (opened ??= Log.open(path));
  return {
    get: async (key) => (await use()).values.get(key),
    entries: async (prefix) => [...(await use()).values].filter(([key]) => key.startsWith(prefix)),
    set: async (key, value) => (await use()).put(key, value),
    async add(key, value) {
      const file = await use();
      if (file.values.has(key)) return false;
      await file.put(key, value);
      return true;
    },
    delete: async (key) => (await use()).put(key, undefined),
  };
}

/** An open file, and what it says. */
class Log {
  readonly values = new Map<string, unknown>();
  #handle: FileHandle | undefined;
  #lines = ""; // that are not written
  #next: Promise<void> | undefined; // the write of #lines
  #last: Promise<unknown> = Promise.resolve(); // the write before it
  #size = 0; // bytes written since the file was made
  #most = 0; // of #size, until it is made anew

  private constructor(private readonly path: string) {}

  static async open(path: string): Promise<Log> {
    const log = new Log(path);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const content = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
      return "";
    });
    for (const text of content.split("\n")) log.#read(text);
    await log.#rewrite();
    return log;
  }

  /** Keeps a value, undefined for none. It resolves when that is on the disk. */
  put(key: string, value: unknown): Promise<void> {
    if (value === undefined) this.values.delete(key);
    else this.values.set(key, value);
    this.#lines += line(key, value);
    if (!this.#next) { // what comes while the last write is on its way is written together
      this.#next = this.#last.then(() => this.#write());
      this.#last = this.#next.catch(() => {});
    }
    return this.#next;
  }

  async #write(): Promise<void> {
    const lines = this.#lines;
    this.#lines = "";
    this.#next = undefined;
    this.#size += Buffer.byteLength(lines);
    if (!this.#handle || this.#size > this.#most) return this.#rewrite();
    try {
      await this.#handle.appendFile(lines);
      await this.#handle.datasync();
    } catch (error) {
      this.#size = Infinity; // a line may be broken: the next write makes the file anew
      throw error;
    }
  }

  #read(text: string): void {
    try {
      const [key, value] = JSON.parse(text) as [string, unknown?];
      if (value === undefined) this.values.delete(key);
      else this.values.set(key, value);
    } catch {
      // the last line, and it was broken by a crash
    }
  }

  async #rewrite(): Promise<void> {
    const all = [...this.values].map(([key, value]) => line(key, value)).join("");
    const temporary = `${this.path}.new`;
    const handle = await open(temporary, "w", 0o600);
    try {
      await handle.writeFile(all);
      await handle.sync();
      await rename(temporary, this.path);
      await syncFolder(dirname(this.path));
    } catch (error) {
      await handle.close();
      this.#size = Infinity; // the next write makes the file anew
      throw error;
    }
    await this.#handle?.close();
    this.#handle = handle;
    this.#size = 0;
    this.#most = Buffer.byteLength(all) + spare;
  }
}

/** Writes the name of a new file to the disk. Windows opens no folders. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform === "win32") return;
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

const line = (key: string, value: unknown): string => JSON.stringify(value === undefined ? [key] : [key, value]) + "\n";
