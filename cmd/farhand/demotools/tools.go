// Package demotools has the tools that `farhand demo` and `farhand device` offer to agents: this machine's properties,
// its sensors, and the addresses that its owner shares. None of them changes anything. It may import only the device
// SDK. Start reading at Basic.
package demotools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// Tool is a tool with its handler.
type Tool struct {
	client.Tool
	Handler client.Handler
}

// maxSleep bounds the sleep tool.
const maxSleep = 10 * time.Minute

// Basic returns the tools every machine can offer: device_info, sensors, echo and sleep.
func Basic() []Tool {
	return []Tool{
		NewTool("device_info",
			"Describe this machine: name, operating system, version, architecture, processors, memory and uptime.",
			`{"type":"object","properties":{},"additionalProperties":false}`, deviceInfo),
		NewTool("sensors",
			"Read the sensors of this machine: load, memory, temperatures and battery, where present.",
			`{"type":"object","properties":{"type":{"type":"string","enum":["load","memory","temperature","battery"],`+
				`"description":"read only this sensor"}},"additionalProperties":false}`, readSensors),
		NewTool("echo", "Return the given text, to try things out.",
			`{"type":"object","properties":{"text":{"type":"string","description":"what to return"}},`+
				`"required":["text"]}`, echo),
		NewTool("sleep", "Wait for the given number of seconds and then answer, to try out slow tools and timeouts.",
			`{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":600}},`+
				`"required":["seconds"],"additionalProperties":false}`, sleep),
	}
}

// NewTool returns a tool whose arguments are decoded into A.
func NewTool[A any](name, description, parameters string, run func(context.Context, A) (any, error)) Tool {
	return Tool{
		Tool: client.Tool{Name: name, Description: description, Parameters: json.RawMessage(parameters)},
		Handler: func(ctx context.Context, call client.Call) (any, error) {
			var args A
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return nil, err
			}
			return run(ctx, args)
		},
	}
}

// Choose returns the tools with the given names, all of them if there are none.
func Choose(all []Tool, names []string) ([]Tool, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Tool
	for _, name := range names {
		i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no tool %q; this machine has %s", name, Names(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Names returns the names of tools, separated by commas.
func Names(tools []Tool) string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return strings.Join(names, ", ")
}

func echo(_ context.Context, args struct{ Text string }) (any, error) { return args.Text, nil }

func sleep(ctx context.Context, args struct{ Seconds float64 }) (any, error) {
	d := min(max(time.Duration(args.Seconds*float64(time.Second)), 0), maxSleep)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return fmt.Sprintf("slept %v", d), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const (
	maxVCardBytes   = 32 << 20
	defaultContacts = 20
	maxContacts     = 200
)

type contact struct {
	Name         string   `json:"name"`
	Organization string   `json:"organization,omitempty"`
	Phones       []string `json:"phones,omitempty"`
	Emails       []string `json:"emails,omitempty"`
}

// contactsAnswer has the contacts returned and the number of matches.
type contactsAnswer struct {
	Contacts []contact `json:"contacts"`
	Total    int       `json:"total"` // that match, returned or not
}

// Contacts returns a tool that searches the addresses of a vCard file. It reads the file once, immediately.
func Contacts(path string) (Tool, error) {
	f, err := os.Open(path)
	if err != nil {
		return Tool{}, fmt.Errorf("contacts: %w", err)
	}
	defer f.Close()
	all, err := readContacts(io.LimitReader(f, maxVCardBytes))
	if err != nil {
		return Tool{}, fmt.Errorf("contacts: %s is not a vCard file: %w", path, err)
	}
	return NewTool("contacts",
		"Search the contacts of this machine's owner by name, organization, telephone number or e-mail address.",
		`{"type":"object","properties":{"query":{"type":"string","description":"text to look for; empty returns all"},`+
			`"limit":{"type":"integer","minimum":1,"maximum":200}},"required":["query"],"additionalProperties":false}`,
		all.search), nil
}

type addresses []contact

// readContacts reads the cards of a vCard file, of version 3.0 or 4.0 (RFC 6350). Other lines are skipped.
func readContacts(r io.Reader) (all addresses, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	unfold := strings.NewReplacer("\r\n ", "", "\r\n\t", "", "\n ", "", "\n\t", "")
	unescape := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";")
	var open *contact
	for line := range strings.Lines(unfold.Replace(string(text))) {
		name, value, ok := cutProperty(strings.TrimRight(line, "\r\n"))
		switch isCard := strings.EqualFold(value, "VCARD"); {
		case !ok:
		case open == nil && (name != "BEGIN" || !isCard):
			return nil, fmt.Errorf("%.40q is outside of a card", line)
		case open == nil:
			open = &contact{}
		case name == "END" && isCard:
			all, open = append(all, *open), nil
		default:
			open.set(name, unescape.Replace(value))
		}
	}
	if open != nil {
		return nil, errors.New("its last card has no end")
	}
	if len(all) == 0 {
		return nil, errors.New("it contains no card")
	}
	return all, nil
}

// cutProperty splits a line of the form [group.]name[;parameter...]:value. The name is returned in upper case. Colons
// in quotes belong to a parameter.
func cutProperty(line string) (name, value string, ok bool) {
	quoted := false
	colon := strings.IndexFunc(line, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ':' && !quoted
	})
	if colon < 0 {
		return "", "", false
	}
	name, _, _ = strings.Cut(line[:colon], ";")
	return strings.ToUpper(name[strings.IndexByte(name, '.')+1:]), line[colon+1:], true
}

// set adds a property of a card. Of several names or organizations the first is kept.
func (c *contact) set(name, value string) {
	switch {
	case name == "TEL":
		c.Phones = append(c.Phones, value)
	case name == "EMAIL":
		c.Emails = append(c.Emails, value)
	case name == "FN" && c.Name == "":
		c.Name = value
	case name == "ORG" && c.Organization == "":
		c.Organization = strings.TrimRight(value, ";")
	}
}

type query struct {
	Query string
	Limit int // 0: defaultContacts
}

func (all addresses) search(_ context.Context, q query) (any, error) {
	answer := contactsAnswer{Contacts: []contact{}}
	for _, c := range all {
		if !c.matches(q.Query) {
			continue
		}
		answer.Total++
		if len(answer.Contacts) < min(cmp.Or(q.Limit, defaultContacts), maxContacts) {
			answer.Contacts = append(answer.Contacts, c)
		}
	}
	return answer, nil
}

func (c contact) matches(text string) bool {
	fields := slices.Concat([]string{c.Name, c.Organization}, c.Phones, c.Emails)
	return strings.Contains(strings.ToLower(strings.Join(fields, "\n")), strings.ToLower(strings.TrimSpace(text)))
}
