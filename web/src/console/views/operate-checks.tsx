import { useState } from "preact/hooks";
import { Problem } from "../../api/client";
import type { Diagnosis, Finding } from "../../api/types";
import { Badge, Button, Empty, Failure, Panel, type Tone } from "../../ui/parts";
import { words } from "../../words/en";
import { client } from "../session";
import { Table } from "./table";

const text = words.operate;

/** What the pod that answers finds when it checks what it uses. */
export function Checks() {
  const [found, setFound] = useState<Diagnosis>();
  const [error, setError] = useState<unknown>();
  const [running, setRunning] = useState(false);
  const run = async () => {
    setError(undefined);
    setRunning(true);
    try {
      setFound(await client.get<Diagnosis>("/api/doctor"));
    } catch (thrown) {
      setError(thrown instanceof Problem && thrown.status === 403 ? text.notOperator : thrown);
    } finally {
      setRunning(false);
    }
  };
  const button = (
    <Button look="first" disabled={running} onClick={run}>
      {running ? text.checking : found ? text.again : text.run}
    </Button>
  );
  if (!found) {
    return (
      <Empty title={text.checks}>
        <p class="muted">{text.checksText}</p>
        {button}
        {error !== undefined && <Failure error={error} />}
      </Empty>
    );
  }
  return (
    <Panel title={text.checked(found.pod)} actions={button} flush>
      {error !== undefined && <Failure error={error} />}
      <Table
        label={text.checks}
        rows={found.findings}
        keyOf={(finding) => finding.part}
        columns={[
          { title: text.columns.part, cell: (finding) => finding.part },
          { title: text.columns.result, cell: (finding) => <Result finding={finding} /> },
          { title: text.columns.text, cell: (finding) => <span class="pre">{finding.text}</span>, wide: true },
        ]}
      />
    </Panel>
  );
}

function Result({ finding }: { finding: Finding }) {
  const [tone, name]: [Tone, string] = finding.ok
    ? ["good", text.findings.ok]
    : finding.needed
      ? ["bad", text.findings.missing]
      : ["", text.findings.unused];
  return <Badge tone={tone}>{name}</Badge>;
}
