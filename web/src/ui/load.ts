import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  /** The last value; it stays while another is loaded. */
  value: T | undefined;
  error: unknown;
  loading: boolean;
  reload: () => void;
}

/** useLoaded runs load when the page shows the component, when deps change, and at reload. The latest run counts. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, deps: unknown[]): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({ value: undefined, error: undefined, loading: true });
  const [run, setRun] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const control = new AbortController();
    setState((s) => ({ ...s, loading: true }));
    latest.current(control.signal).then(
      (value) => control.signal.aborted || setState({ value, error: undefined, loading: false }),
      (error: unknown) => control.signal.aborted || setState((s) => ({ ...s, error, loading: false })),
    );
    return () => control.abort();
  }, [...deps, run]);
  return { ...state, reload: useCallback(() => setRun((n) => n + 1), []) };
}
