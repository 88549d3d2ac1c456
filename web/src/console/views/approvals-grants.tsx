import { useState } from "preact/hooks";
import { path } from "../../api/client";
import type { Grant, GrantList } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Badge, Button, Dialog, Empty, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { client } from "../session";
import { By } from "./approvals-request";
import { Table } from "./table";

const text = words.grants;

/** What "allow always" has granted, and a way to take it back. */
export function Grants() {
  const grants = useLoaded((signal) => client.get<GrantList>("/api/grants", { signal }), []);
  const [taken, setTaken] = useState<Grant>();
  useEvents((event) => {
    if (event.type === "approval.decided") grants.reload();
  }, grants.reload);
  if (!grants.value) return <NotYet loaded={grants} />;
  if (grants.value.grants.length === 0) {
    return (
      <Empty title={text.none.title}>
        <p class="muted">{text.none.text}</p>
      </Empty>
    );
  }
  return (
    <Panel flush>
      <Table
        label={words.approvals.grants}
        rows={grants.value.grants}
        keyOf={(grant) => grant.id}
        columns={[
          { title: text.columns.tool, cell: (grant) => <span class="mono">{grant.tool}</span> },
          { title: text.columns.device, cell: (grant) => grant.device_id ?? grant.session_id ?? text.anyDevice },
          { title: text.columns.requester, cell: (grant) => <By requester={grant.requester} /> },
          {
            title: text.columns.scope,
            cell: (grant) =>
              grant.args_digest ? (
                <Badge title={grant.args_digest}>{text.same}</Badge>
              ) : (
                <Badge tone="warn">{text.any}</Badge>
              ),
          },
          { title: text.columns.by, cell: (grant) => <span class="bidi">{grant.granted_by}</span> },
          { title: text.columns.until, cell: (grant) => <Time at={grant.expires_at} /> },
        ]}
        actions={(grant) => (
          <Button small look="danger" onClick={() => setTaken(grant)}>
            {text.revoke}
          </Button>
        )}
      />
      <Dialog
        title={text.revoke}
        open={taken !== undefined}
        onClose={() => setTaken(undefined)}
        submit={text.revoke}
        danger
        onSubmit={async () => {
          await client.delete(path("api", "grants", taken!.id));
          notify(text.revoked, "good");
          grants.reload();
        }}
      >
        <p>{text.revokeText(taken?.tool ?? "")}</p>
      </Dialog>
    </Panel>
  );
}
