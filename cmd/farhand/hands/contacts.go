package hands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/emersion/go-vcard"

	"github.com/farhand/farhand/ws/client"
)

const (
	maxVCardBytes   = 32 << 20
	defaultContacts = 20
	maxContacts     = 200
)

// contact is one address as agents see it.
type contact struct {
	Name         string   `json:"name"`
	Organization string   `json:"organization,omitempty"`
	Phones       []string `json:"phones,omitempty"`
	Emails       []string `json:"emails,omitempty"`
}

// contactsAnswer says how many more there are than were returned.
type contactsAnswer struct {
	Contacts []contact `json:"contacts"`
	Total    int       `json:"total"` // that match, returned or not
}

// Contacts returns a tool that searches the addresses of a vCard file. The file is read once, now.
func Contacts(path string) (Hand, error) {
	f, err := os.Open(path)
	if err != nil {
		return Hand{}, fmt.Errorf("contacts: %w", err)
	}
	defer f.Close()
	all, err := readContacts(io.LimitReader(f, maxVCardBytes))
	if err != nil {
		return Hand{}, fmt.Errorf("contacts: %s is not a vCard file: %w", path, err)
	}
	return Hand{
		Tool: client.Tool{
			Name:        "contacts",
			Description: "Search the contacts of this machine's owner by name, organization, telephone number or e-mail address.",
			Parameters: json.RawMessage(`{"type":"object","properties":{` +
				`"query":{"type":"string","description":"text to look for; empty returns all"},` +
				`"limit":{"type":"integer","minimum":1,"maximum":200}},"required":["query"],"additionalProperties":false}`),
		},
		Handler: func(_ context.Context, call client.Call) (any, error) { return searchContacts(all, call.Args) },
	}, nil
}

func readContacts(r io.Reader) ([]contact, error) {
	var all []contact
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

func searchContacts(all []contact, raw json.RawMessage) (contactsAnswer, error) {
	args := struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}{Limit: defaultContacts}
	if err := json.Unmarshal(raw, &args); err != nil {
		return contactsAnswer{}, err
	}
	answer := contactsAnswer{Contacts: []contact{}}
	for _, c := range all {
		if !c.matches(args.Query) {
			continue
		}
		answer.Total++
		if len(answer.Contacts) < min(args.Limit, maxContacts) {
			answer.Contacts = append(answer.Contacts, c)
		}
	}
	return answer, nil
}

func (c contact) matches(query string) bool {
	text := strings.ToLower(strings.Join(append(append([]string{c.Name, c.Organization}, c.Phones...), c.Emails...), "\n"))
	return strings.Contains(text, strings.ToLower(strings.TrimSpace(query)))
}
