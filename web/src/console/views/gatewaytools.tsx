import { Link } from "wouter-preact";
import type { ToolRow } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { Empty, Failure, Loading } from "../../ui/parts";
import { words } from "../../words/en";
import { client } from "../session";
import { Head } from "./bits";
import { ToolList } from "./toollist";
import "./device.css";

const text = words.tools;

/** The tools that need no device. */
export function GatewayTools() {
  const { value, error, reload } = useLoaded(async (signal) => {
    const found: ToolRow[] = [];
    for (const source_type of ["builtin", "mcp"]) {
      for await (const page of client.pages<ToolRow>("/api/tools", "tools", { signal, query: { source_type } }))
        found.push(...page);
    }
    return found;
  }, []);
  if (error !== undefined && !value) return <Failure error={error} retry={reload} />;
  if (!value) return <Loading />;
  return (
    <>
      <Head back={<Link href="/devices">{words.device.back}</Link>} title={text.title} />
      <p class="muted">{text.text}</p>
      {value.length === 0 ? (
        <Empty title={text.none.title}>
          <p class="muted">{text.none.text}</p>
        </Empty>
      ) : (
        <ToolList tools={value} />
      )}
    </>
  );
}
