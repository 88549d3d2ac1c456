package policy

import (
	"fmt"
	"strings"
)

// maxProblems bounds how many problems of a file are told.
const maxProblems = 20

// Problem is one thing that is wrong with a policy file, and where. Lines and columns are counted from 1.
type Problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// String returns line:column: message.
func (p Problem) String() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message) }

// Problems is everything that is wrong with a policy file, in order of lines, at least one problem.
type Problems []Problem

// Error returns each problem on a line of its own.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}
