package main

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout bounds how long a shell waits for names from the gateway.
const completionTimeout = 2 * time.Second

// completeTools offers the names of the tools there are, for the first argument.
func completeTools(r *remote) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // a file, after @
		}
		return names(cmd.Context(), r, "/api/tools", "tools", url.Values{"view": {"grouped"}}, "name"),
			cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSessions offers the ids of the sessions that are connected.
func completeSessions(r *remote) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		q := url.Values{"connected": {"true"}}
		return names(cmd.Context(), r, "/api/sessions", "sessions", q, "session_id"), cobra.ShellCompDirectiveNoFileComp
	}
}

// names reads one member of all rows of a list; none when the gateway does not answer.
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
