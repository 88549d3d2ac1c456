import type { Loaded } from "./load";
import { Failure, Loading } from "./parts";

/** What is shown in place of something that has not been loaded. */
export function NotYet({ loaded }: { loaded: Loaded<unknown> }) {
  return loaded.error === undefined ? <Loading /> : <Failure error={loaded.error} retry={loaded.reload} />;
}
