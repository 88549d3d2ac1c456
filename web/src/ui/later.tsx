import type { ComponentType, FunctionComponent } from "preact";
import { useState } from "preact/hooks";
import { useLoaded } from "./load";
import { Failure, Loading } from "./parts";

/** later returns a component whose code is loaded when it is first shown. */
export function later<P extends object>(load: () => Promise<ComponentType<P>>): FunctionComponent<P> {
  let known: ComponentType<P> | undefined;
  return function Later(props: P) {
    const [Known] = useState(() => known);
    const loaded = useLoaded(async () => {
      known ??= await load();
      return { View: known };
    }, []);
    const View = Known ?? loaded.value?.View;
    if (View) return <View {...props} />;
    return loaded.error === undefined ? <Loading /> : <Failure error={loaded.error} retry={loaded.reload} />;
  };
}
