package metricstest

import (
	"os"
	"strings"
)

// Runbooks is the page of runbooks: a preamble with a shell function, and a section for each alert.
type Runbooks struct{ text string }

// ReadRunbooks reads the page.
func ReadRunbooks(path string) (Runbooks, error) {
	text, err := os.ReadFile(path)
	return Runbooks{string(text)}, err
}

// Preamble returns the commands that prepare a shell for those of the sections.
func (r Runbooks) Preamble() string { return firstBlock(r.text) }

// Alerts returns the names of the sections.
func (r Runbooks) Alerts() (all []string) {
	for line := range strings.Lines(r.text) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			all = append(all, strings.TrimSpace(name))
		}
	}
	return all
}

// Section returns the parts of a section: what its alert means, the first command, and what to do. All are empty if
// there is no section.
func (r Runbooks) Section(alert string) (meaning, command, advice string) {
	_, rest, _ := strings.Cut(r.text, "\n### "+alert+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	rest, _, _ = strings.Cut(rest, "\n### ")
	command = firstBlock(rest)
	meaning, advice, _ = strings.Cut(rest, command)
	return meaning, command, advice
}

// firstBlock returns the first block of shell commands in a text.
func firstBlock(text string) string {
	_, rest, _ := strings.Cut(text, "\n```sh\n")
	block, _, _ := strings.Cut(rest, "\n```")
	return block
}
