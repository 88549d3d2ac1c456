import { useEffect, useRef, useState } from "preact/hooks";
import { useArmed } from "../ui/armed";
import { Button } from "../ui/parts";
import { words } from "../words/device";
import { Left } from "./phases";
import { prompts, type Prompt } from "./prompts";

export function Prompts() {
  return (
    <div class="prompts" role="region" aria-live="assertive" aria-label={words.prompts.title}>
      {prompts.value.map((prompt) => (
        <Card key={prompt.id} prompt={prompt} />
      ))}
    </div>
  );
}

/** Buttons do nothing until their question has stood still for this long: questions above it can leave or come. */
const calm = 400; // ms

function Card({ prompt }: { prompt: Prompt }) {
  const { tool, text, detail, remarks = [], choices, field, dismiss, until, approval } = prompt;
  const [answer, setAnswer] = useState("");
  const heading = useRef<HTMLHeadingElement>(null);
  const buttons = useRef<HTMLDivElement>(null);
  const ready = useArmed(buttons, calm);
  useEffect(() => heading.current?.scrollIntoView({ block: "nearest" }), []);
  const title = words.tools[tool]?.title ?? tool;
  const send = (event: Event) => {
    event.preventDefault();
    if (field !== undefined && ready && answer) choices.at(-1)?.run(answer);
  };
  return (
    <form class="panel prompt" data-call={prompt.id} onSubmit={send}>
      <header>
        <span class="muted">{words.prompts.from(approval ? tool : title)}</span>
        <Left until={until} text={words.prompts.left} />
      </header>
      <h2 ref={heading} class="plain">
        {approval ? words.prompts.approval(title) : text}
      </h2>
      {approval && <p class="plain">{text}</p>}
      {detail && (
        <pre tabIndex={0} aria-label={words.prompts.arguments}>
          {detail}
        </pre>
      )}
      {remarks.map((remark) => (
        <p key={remark} class="remark">
          {words.prompts.remarks[remark] ?? remark}
        </p>
      ))}
      <div class="choices" ref={buttons}>
        {(field === undefined ? choices : choices.slice(0, -1)).map((choice) => (
          <Button
            key={choice.label}
            {...(choice.look && { look: choice.look })}
            disabled={!ready}
            onClick={() => choice.run(answer)}
          >
            {choice.label}
          </Button>
        ))}
      </div>
      {field !== undefined && (
        <textarea
          class="input"
          rows={2}
          aria-label={words.prompts.answer}
          placeholder={field}
          value={answer}
          onInput={(event) => setAnswer(event.currentTarget.value)}
        />
      )}
      <div class="choices">
        {field !== undefined && (
          <Button type="submit" look="first" disabled={!ready || !answer}>
            {choices.at(-1)?.label}
          </Button>
        )}
        {dismiss && (
          <Button look="plain" onClick={dismiss}>
            {words.prompts.dismiss}
          </Button>
        )}
      </div>
    </form>
  );
}
