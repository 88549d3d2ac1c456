package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/internal/typo"
)

// completionTimeout bounds how long a shell waits for names from the gateway.
const completionTimeout = 2 * time.Second

// completeTools completes the names of tools, for the first argument.
func completeTools(r *remote) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // a file, after @
		}
		return names(cmd.Context(), r, "/api/tools", "tools", url.Values{"view": {"grouped"}}, "name"),
			cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSessions completes the ids of connected sessions.
func completeSessions(r *remote) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		q := url.Values{"connected": {"true"}}
		return names(cmd.Context(), r, "/api/sessions", "sessions", q, "session_id"), cobra.ShellCompDirectiveNoFileComp
	}
}

// names reads one field of all rows of a list. It returns none if the gateway does not answer.
func names(ctx context.Context, r *remote, path, field string, q url.Values, member string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	rows, err := fetchAll(ctx, *r, path, field, q)
	if err != nil {
		return nil
	}
	var found []string
	for _, raw := range rows {
		var row map[string]json.RawMessage
		var name string
		if json.Unmarshal(raw, &row) == nil && json.Unmarshal(row[member], &name) == nil && printable(name) == name {
			found = append(found, name)
		}
	}
	return found
}

// nearest returns the known name most similar to a name that does not exist, or nothing. A third of the letters may
// differ, rounded up, at most three.
func nearest(name string, known []string) string {
	best, least := "", min((len(name)+2)/3, 3)+1
	for _, k := range known {
		if k == name {
			continue // it exists elsewhere, so it is no typo
		}
		if d := typo.Distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// didYouMean returns a sentence with the nearest known name, to append to an error. It is empty if none is near.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return " Did you mean " + near + "?"
	}
	return ""
}

// plural counts things: 1 session, 2 sessions.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// invocation returns how this program was started, so that printed commands can be copied.
func invocation(args []string) string {
	if len(args) == 0 {
		return "farhand"
	}
	program := args[0]
	// `go run` builds into a folder below the one for temporary files and removes it afterwards.
	if slices.Contains(strings.Split(filepath.ToSlash(program), "/"), "exe") && strings.Contains(program, "go-build") {
		return "go run ./cmd/farhand"
	}
	if strings.ContainsRune(program, os.PathSeparator) {
		return program
	}
	return filepath.Base(program)
}
