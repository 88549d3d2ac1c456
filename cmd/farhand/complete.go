package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/typo"
	"github.com/farhand/farhand/registry"
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

// remote talks to a running gateway over HTTP.
type remote struct {
	server string
	token  string
}

// flags adds the flags every command that talks to a gateway has. Their defaults come from the environment.
func (r *remote) flags(set *pflag.FlagSet, environ []string) {
	vars := env.ToMap(environ)
	server := vars[envPrefix+"URL"]
	if server == "" {
		server = "http://127.0.0.1:8080"
	}
	set.StringVar(&r.server, "server", server, "URL of the gateway, or its host:port (FARHAND_URL)")
	// The token is not the flag's default, or --help would print it.
	set.StringVar(&r.token, "token", "", "bearer token (FARHAND_TOKEN)")
	r.token = vars[envPrefix+"TOKEN"]
}

// problem is an error answer of the gateway.
type problem auth.Problem

// Error implements error. It includes what a person needs to act.
func (p problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.Code, p.Detail)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  args%s: %s", e.Pointer, e.Message)
	}
	for _, c := range p.Candidates {
		fmt.Fprintf(&b, "\n  --session %s", c.SessionID)
		if c.Name != "" || c.DeviceID != "" {
			fmt.Fprintf(&b, "  (%s)", strings.TrimSpace(c.Name+" "+c.DeviceID))
		}
	}
	if p.Dispatched != "" {
		fmt.Fprintf(&b, "\n  reached the device: %s; call %s", p.Dispatched, p.CallID)
	}
	return b.String()
}

// base returns the gateway's URL. Without a scheme it is plain HTTP, as in other programs.
func (r *remote) base() string {
	server := strings.TrimSuffix(r.server, "/")
	if !strings.Contains(server, "://") {
		return "http://" + server
	}
	return server
}

// request makes a request with the gateway's token.
func (r *remote) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	target := r.base() + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, fmt.Errorf("--server must look like https://gateway.example.com: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	return req, nil
}

// send sends a request and returns a successful response, whose body the caller must close.
func (r *remote) send(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
			return nil, fmt.Errorf("the certificate of %s cannot be verified: %w\n  If its authority is your own, add "+
				"the authority's certificate to the system's, or name its file in SSL_CERT_FILE", r.base(), certificate)
		}
		const format = "no answer from the gateway at %s (is it running? see --server): %w"
		return nil, fmt.Errorf(format, r.base(), errors.Unwrap(err))
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer of the gateway broke off: %w", err)
	}
	p := problem{Code: registry.Code(resp.Status), Detail: "the gateway gave no reason"}
	if json.Unmarshal(b, &p) != nil {
		p.Detail = "the answer is not from a Farhand gateway"
	}
	p.Status = resp.StatusCode
	return nil, p
}

// isAway reports whether an error means that no gateway answered, or none that can serve now. Commands that follow
// something then retry.
func isAway(err error) bool {
	var p problem
	if errors.As(err, &p) {
		return p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
	}
	var foreign *json.SyntaxError
	return err != nil && !errors.As(err, &foreign)
}

// decodeAnswer decodes a gateway's answer.
func decodeAnswer(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("the answer is not from a Farhand gateway: %w", err)
	}
	return nil
}

// do sends a request and returns the body of a successful response.
func (r *remote) do(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	req, err := r.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	resp, err := r.send(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer of the gateway broke off: %w", err)
	}
	return b, nil
}

// remoteStep returns a command that calls a gateway. args is its number of arguments; negative: the minimum, -args.
func (a *application) remoteStep(
	use, short string, args int, run func(context.Context, remote, []string) error,
) *cobra.Command {
	var r remote
	check := cobra.ExactArgs(args)
	if args < 0 {
		check = cobra.MinimumNArgs(-args)
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: check,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), r, args) },
	}
	r.flags(cmd.Flags(), a.environ)
	return cmd
}
