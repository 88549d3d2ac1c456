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

	"github.com/emersion/go-vcard"
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

func readContacts(r io.Reader) (addresses, error) {
	var all addresses
	dec := vcard.NewDecoder(r)
	for {
		card, err := dec.Decode()
		if errors.Is(err, io.EOF) {
			if len(all) == 0 {
				return nil, errors.New("it holds no card")
			}
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, contact{
			Name:         card.PreferredValue(vcard.FieldFormattedName),
			Organization: strings.TrimRight(card.PreferredValue(vcard.FieldOrganization), ";"),
			Phones:       card.Values(vcard.FieldTelephone),
			Emails:       card.Values(vcard.FieldEmail),
		})
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
