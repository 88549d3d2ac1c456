/** Emitter calls listeners, in the order in which they came. E maps the types of events to their values. */
export class Emitter<E> {
  readonly #listeners = new Map<keyof E, Set<(event: never) => void>>();

  /** Calls listener with each event of a type. The returned function ends that. */
  on<K extends keyof E>(type: K, listener: (event: E[K]) => void): () => void {
    const all = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, all.add(listener));
    return () => void all.delete(listener);
  }

  /** Tells the listeners. One that throws does not keep the event from the others. */
  protected emit<K extends keyof E>(type: K, event: E[K]): void {
    for (const listener of [...(this.#listeners.get(type) ?? [])] as ((event: E[K]) => void)[]) {
      try {
        listener(event);
      } catch (error) {
        console.error(error);
      }
    }
  }
}
