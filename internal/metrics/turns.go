package metrics

import (
	"github.com/farhand/farhand/agent/chat"
)

// turnBuckets are seconds.
var turnBuckets = []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Turns counts turns of conversations.
type Turns struct {
	outcomes  map[string]tally  // by channel; never changes
	durations map[string]*timer // by channel; never changes
	calls     tally             // by channel
	input     tally             // by model
	output    tally             // by model
}

var _ chat.Activity = (*Turns)(nil)

func newTurns(s *Set, models []string) *Turns {
	channels := []string{chat.ChannelChat, chat.ChannelCompletion}
	channel := Label{"channel", channels}
	outcomes := texts([]chat.Outcome{chat.OutcomeDone, chat.OutcomeAborted, chat.OutcomeError, other})
	models = append(append([]string(nil), models...), other)
	t := &Turns{
		outcomes: make(map[string]tally), durations: make(map[string]*timer), calls: newTally(append(channels, other)),
		input: newTally(models), output: newTally(models),
	}
	s.counter("farhand_turns_total", "Turns of conversations that ended, by where they came in and how they ended.",
		source{[]Label{channel, {"outcome", outcomes}}, func(emit emitFunc) {
			for channel, tally := range t.outcomes {
				tally.emit(emit, channel)
			}
		}})
	durations := s.histograms("farhand_turn_duration_seconds", "How long turns took, tools included.",
		[]Label{channel}, turnBuckets)
	s.counter("farhand_turn_calls_total",
		"Tool calls that models asked for.",
		source{[]Label{{"channel", append(channels, other)}}, func(emit emitFunc) { t.calls.emit(emit) }})
	s.counter("farhand_model_tokens_total",
		"Tokens that models read (input) and wrote (output), as their providers count them.",
		source{[]Label{{"direction", []string{"input", "output"}}, {"model", models}}, func(emit emitFunc) {
			t.input.emit(emit, "input")
			t.output.emit(emit, "output")
		}})
	for _, c := range channels {
		t.outcomes[c], t.durations[c] = newTally(outcomes), newTimer(durations, c)
	}
	return t
}

// TurnStarted implements chat.Activity.
func (t *Turns) TurnStarted(chat.TurnInfo) {}

// TurnFinished implements chat.Activity.
func (t *Turns) TurnFinished(info chat.TurnInfo, end chat.TurnEnd) {
	if outcomes, ok := t.outcomes[info.Channel]; ok {
		outcomes.add(string(end.Outcome), 1)
		t.durations[info.Channel].observe(end.Duration)
	}
	t.calls.add(info.Channel, int64(end.Calls))
	t.input.add(info.Model, int64(end.Usage.Input))
	t.output.add(info.Model, int64(end.Usage.Output))
}
