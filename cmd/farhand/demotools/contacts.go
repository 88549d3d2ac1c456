package demotools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	maxVCardBytes   = 32 << 20
	defaultContacts = 20
	maxContacts     = 200
)

// contact is one address, as agents see it.
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
	return newTool("contacts",
		"Search the contacts of this machine's owner by name, organization, telephone number or e-mail address.",
		`{"type":"object","properties":{"query":{"type":"string","description":"text to look for; empty returns all"},`+
			`"limit":{"type":"integer","minimum":1,"maximum":200}},"required":["query"],"additionalProperties":false}`,
		all.search), nil
}

// addresses are the contacts of a file.
type addresses []contact

// readContacts reads the cards of a vCard file, of version 3.0 or 4.0 (RFC 6350). Lines that are no properties are
// skipped.
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
		return nil, errors.New("it holds no card")
	}
	return all, nil
}

// cutProperty splits a line of the form [group.]name[;parameter...]:value. The name is returned in upper case. Colons in
// quotes belong to a parameter.
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

// query has the arguments of the tool.
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
