import { useState } from "preact/hooks";
import { Copy, Panel } from "../../ui/parts";
import { words } from "../../words/en";
import { Segmented } from "./bits";
import { type Call, forms } from "./copyas";

const { title, ...names } = words.copyAs;

export function CopyAs({ call }: { call: Call }) {
  const [form, setForm] = useState<keyof typeof forms>("curl");
  const written = forms[form](call, location.origin);
  return (
    <Panel
      title={title}
      actions={
        <Segmented
          label={title}
          value={form}
          options={names}
          onChange={(chosen) => setForm(chosen as keyof typeof forms)}
        />
      }
    >
      <div class="copied">
        <pre class="output" tabIndex={0}>
          {written}
        </pre>
        <Copy text={written} />
      </div>
    </Panel>
  );
}
