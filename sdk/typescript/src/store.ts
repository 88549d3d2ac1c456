/**
 * Store keeps what a device must not forget: its credential, its session, and its calls. Values are JSON; a store of a
 * browser also takes a CryptoKey. A store belongs to one device; its methods may be called concurrently.
 */
export interface Store {
  get(key: string): Promise<unknown>;
  /** Returns all entries whose keys begin with prefix. */
  entries(prefix: string): Promise<[key: string, value: unknown][]>;
  /** Keeps a value before the promise resolves. */
  set(key: string, value: unknown): Promise<void>;
  /** Keeps a value unless there is one. Returns whether it did. */
  add(key: string, value: unknown): Promise<boolean>;
  delete(key: string): Promise<void>;
  /**
   * Waits until no other device has the store. The returned function gives it back; `busy` is called if that must be
   * waited for. Absent: the store does not know.
   */
  lock?(busy: () => void, signal: AbortSignal): Promise<() => void>;
}

/** A store that forgets everything when the page or the program ends. */
export function memoryStore(): Store {
  const values = new Map<string, unknown>();
  return {
    get: async (key) => values.get(key),
    entries: async (prefix) => [...values].filter(([key]) => key.startsWith(prefix)),
    set: async (key, value) => void values.set(key, value),
    add: async (key, value) => !values.has(key) && Boolean(values.set(key, value)),
    delete: async (key) => void values.delete(key),
  };
}

/** A store in a database (IndexedDB) of the page's origin. Pages with the same name share it. */
export function indexedDBStore(name: string): Store {
  let opening: Promise<IDBDatabase> | undefined;
  const open = (): Promise<IDBDatabase> =>
    (opening ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => void request.result.createObjectStore("kept");
      request.onsuccess = () => {
        request.result.onversionchange = () => request.result.close(); // somebody deletes it
        request.result.onclose = () => (opening = undefined);
        resolve(request.result);
      };
      request.onerror = () => reject(request.error);
    }));
  const read = async <T>(ask: (kept: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    const request = ask((await open()).transaction("kept").objectStore("kept"));
    return new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  };
  // Strict: the value is on the disk, not only with the system, when the transaction is complete.
  const write = async (change: (kept: IDBObjectStore) => unknown): Promise<void> => {
    const transaction = (await open()).transaction("kept", "readwrite", { durability: "strict" });
    change(transaction.objectStore("kept"));
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
  };
  const range = (prefix: string): IDBKeyRange => IDBKeyRange.bound(prefix, prefix + "\uffff");
  return {
    get: (key) => read<unknown>((kept) => kept.get(key)),
    async entries(prefix) {
      let keys: IDBRequest<IDBValidKey[]> | undefined;
      const values = await read<unknown[]>((kept) => {
        keys = kept.getAllKeys(range(prefix)); // of the same transaction, and answered before the values
        return kept.getAll(range(prefix));
      });
      return (keys?.result ?? []).map((key, i) => [String(key), values[i]]);
    },
    set: (key, value) => write((kept) => kept.put(value, key)),
    add: (key, value) =>
      write((kept) => kept.add(value, key)).then(
        () => true,
        (error: unknown) => {
          if (error instanceof DOMException && error.name === "ConstraintError") return false;
          throw error;
        },
      ),
    delete: (key) => write((kept) => kept.delete(key)),
    ...("locks" in navigator && { lock: (busy: () => void, signal: AbortSignal) => webLock(name, busy, signal) }),
  };
}

/** Takes a lock that all pages of the origin share, and that ends with the page. */
function webLock(name: string, busy: () => void, signal: AbortSignal): Promise<() => void> {
  return new Promise((resolve, reject) => {
    const hold = (): Promise<void> => new Promise((end) => resolve(end));
    navigator.locks
      .request(name, { ifAvailable: true }, (lock) => {
        if (lock) return hold();
        busy();
        navigator.locks.request(name, { signal }, hold).catch(reject);
        return undefined;
      })
      .catch(reject);
  });
}
