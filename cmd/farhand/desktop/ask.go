package desktop

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/farhand/farhand/registry/textsafe"
)

// Question is what the person at this machine is asked. Its text comes from agents: it must be shown as plain text.
type Question struct {
	Text    string
	Lasting bool // whether Always is an answer
}

// Answer is what the person says.
type Answer int

// The answers.
const (
	Unanswered Answer = iota // the question could not be shown, or ctx ended
	No                       // said by the person
	Once                     // yes, this time
	Always                   // yes, until this program ends
)

// Ask asks the person at this machine, one question at a time, and waits for the answer.
type Ask func(ctx context.Context, q Question) Answer

// Confirm is how the person is asked.
type Confirm string

// The ways. Policy asks nothing: what the configuration does not allow is refused.
const (
	ByTerminal     Confirm = "terminal"
	ByNotification Confirm = "notification"
	ByPolicy       Confirm = "policy"
)

// Asks returns how this machine asks; nil if it asks nothing.
func (d *Desktop) Asks() Ask { return d.ask }

// chooseAsk sets how the person is asked.
func (d *Desktop) chooseAsk(ctx context.Context) error {
	switch d.cfg.Confirm {
	case ByPolicy:
		return nil
	case ByTerminal:
		if d.ask = d.cfg.Terminal; d.ask == nil {
			return errors.New("--confirm terminal requires a terminal")
		}
		return nil
	case ByNotification:
		shown, missing := d.questions(ctx)
		if missing != "" {
			return fmt.Errorf("--confirm notification: %s", missing)
		}
		d.ask, d.windowed = shown, true
		return nil
	case "":
		if d.ask = d.cfg.Terminal; d.ask == nil {
			d.ask, _ = d.questions(ctx) // without them the policy decides
			d.windowed = d.ask != nil
		}
		return nil
	}
	return fmt.Errorf("--confirm %q must be terminal, notification or policy", d.cfg.Confirm)
}

// questions returns what shows questions outside of a terminal, or why there is nothing.
func (d *Desktop) questions(ctx context.Context) (ask Ask, missing string) {
	switch d.system {
	case "darwin":
		script := d.look("osascript")
		if script == "" {
			return nil, "osascript is missing"
		}
		return oneByOne(func(ctx context.Context, q Question) Answer { return d.askByScript(ctx, script, q) }), ""
	case "windows":
		if d.look(powershell) == "" {
			return nil, "PowerShell is missing"
		}
		return oneByOne(d.askByPowerShell), ""
	default:
		if missing := d.notifications(ctx, "actions"); missing != "" {
			return nil, missing
		}
		return oneByOne(d.askByNotification), ""
	}
}

// maxQuestion bounds a question outside of a terminal, in characters, so that the person sees all of it.
const maxQuestion = 500

func fits(question string) bool { return utf8.RuneCountInString(question) <= maxQuestion }

// oneByOne makes questions wait for each other, so that a person sees one at a time. What they would not see of it is
// shown as the replacement character. A question that is too long is not asked.
func oneByOne(ask Ask) Ask {
	asking := newTurn()
	return func(ctx context.Context, q Question) Answer {
		if !fits(q.Text) {
			return Unanswered
		}
		q.Text = textsafe.Expose(q.Text)
		release, err := asking.take(ctx)
		if err != nil {
			return Unanswered
		}
		defer release()
		return ask(ctx, q)
	}
}

// The words of the answers.
const (
	wordNo     = "No"
	wordOnce   = "Allow"
	wordAlways = "Always allow"
)

func words(q Question) []string {
	if q.Lasting {
		return []string{wordNo, wordOnce, wordAlways}
	}
	return []string{wordNo, wordOnce}
}

// answerOf returns what a word means.
func answerOf(word string) Answer {
	switch word {
	case wordOnce:
		return Once
	case wordAlways:
		return Always
	case wordNo:
		return No
	}
	return Unanswered
}
