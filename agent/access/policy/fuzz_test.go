package policy_test

import (
	"errors"
	"os"
	"testing"

	"github.com/farhand/farhand/agent/access/policy"
)

// FuzzFile reads any text: it is a policy, or the problems say where it is none.
func FuzzFile(f *testing.F) {
	example, err := os.ReadFile("../../../examples/policy/policy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, text := range []string{"version: 1", "version: 1\ntools: [{names: ~}]", "[[[", "a: &a [*a]", "? [a]: b",
		"<<: x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := policy.Check(text)
		if err == nil {
			if _, err := policy.New(policy.Options{File: text}); err != nil {
				t.Fatalf("what was checked is refused: %v", err)
			}
			return
		}
		var problems policy.Problems
		if !errors.As(err, &problems) || len(problems) == 0 || problems[0].Line < 1 || problems[0].Column < 1 {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
