package demotools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const cards = "BEGIN:VCARD\nVERSION:4.0\nFN:Ada Lovelace\nORG:Engines;\nTEL:+44 20\nEMAIL:ada@example.com\n" +
	"END:VCARD\nBEGIN:VCARD\nVERSION:4.0\nFN:Grace Hopper\nEMAIL:grace@example.com\nEND:VCARD\n"

func TestContacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my.vcf")
	if err := os.WriteFile(path, []byte(cards), 0o600); err != nil {
		t.Fatal(err)
	}
	contacts, err := Contacts(path)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		`{"query":"LOVE"}`: `{"contacts":[{"name":"Ada Lovelace","organization":"Engines","phones":["+44 ` +
			`20"],"emails":["ada@example.com"]}],"total":1}`,
		`{"query":"nobody"}`:       `{"contacts":[],"total":0}`,
		`{"query":"","limit":1}`:   `"total":2}`,
		`{"query":"example.com"}`:  `"total":2}`,
		`{"query":" grace@exam "}`: `"total":1}`,
	} {
		out, err := run(t, []Tool{contacts}, "contacts", query)
		if err != nil || !strings.HasSuffix(out, want) {
			t.Errorf("%s: %s, %v", query, out, err)
		}
	}
}

func TestContactsOfWrongFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing", "empty", "text"} {
		if _, err := Contacts(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// TestVCards has what vCard files of version 3.0 and 4.0 may have: folded lines, groups, parameters, escapes.
func TestVCards(t *testing.T) {
	for text, want := range map[string]contact{
		"FN:Ada\r\n  Love\r\n\tlace":                               {Name: "Ada Lovelace"},
		"item1.EMAIL;type=INTERNET;type=pref:a@example.com":        {Emails: []string{"a@example.com"}},
		`tel;VALUE=uri;TYPE="voice;a:b":tel:+44-20`:                {Phones: []string{"tel:+44-20"}},
		`ORG:Acme\, Inc.;R\;D` + "\n" + `FN:a\\nb\nc`:              {Name: "a\\nb\nc", Organization: "Acme, Inc.;R;D"},
		"FN:First\nFN:Second\nno property\n\nNOTE:x\nTEL:1\nTEL:2": {Name: "First", Phones: []string{"1", "2"}},
	} {
		all, err := readContacts(strings.NewReader("begin:vcard\nVERSION:4.0\n" + text + "\nEND:VCARD\n"))
		if err != nil || len(all) != 1 || fmt.Sprintf("%q", all[0]) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, %v, want %q", text, all, err, want)
		}
	}
	for _, text := range []string{
		"FN:x\nBEGIN:VCARD\nEND:VCARD\n", "BEGIN:VCALENDAR\nEND:VCALENDAR\n", "BEGIN:VCARD\nFN:x\n", "no card\n",
	} {
		if all, err := readContacts(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as %q", text, all)
		}
	}
}

// FuzzVCards: a file is contacts or an error, and no contact has text that the file does not have.
func FuzzVCards(f *testing.F) {
	f.Add(cards)
	f.Add("BEGIN:VCARD\r\na.FN;X=\":\":\\\\n\r\n x\r\nEND:VCARD")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readContacts(strings.NewReader(text))
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%d contacts, %v", len(all), err)
		}
		length := 0
		for _, c := range all {
			length += len(c.Name) + len(c.Organization) + len(strings.Join(c.Phones, "")+strings.Join(c.Emails, ""))
		}
		if length > len(text) {
			t.Errorf("%d bytes of %d", length, len(text))
		}
	})
}
