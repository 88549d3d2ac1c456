package main

import (
	"bytes"
	"cmp"
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
	"github.com/farhand/farhand/internal/envconf"
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
		return names(cmd.Context(), r, "tools", url.Values{"view": {"grouped"}}, "name"),
			cobra.ShellCompDirectiveNoFileComp
	}
}

func completeSessions(r *remote) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(cmd.Context(), r, "sessions", url.Values{"connected": {"true"}}, "session_id"),
			cobra.ShellCompDirectiveNoFileComp
	}
}

// names reads one field of all rows of a list. It returns none if the gateway does not answer.
func names(ctx context.Context, r *remote, list string, q url.Values, member string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	rows, err := fetchAll(ctx, *r, list, q)
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
	token  string // of the flag, else of FARHAND_TOKEN
	trust  *trust // nil: the system's authorities

	environment map[string]string // may name the token's file
}

// flags adds the flags every command that talks to a gateway has. Their defaults come from the environment.
func (r *remote) flags(set *pflag.FlagSet, environ []string) {
	vars := env.ToMap(environ)
	server := cmp.Or(vars[envPrefix+"URL"], "http://127.0.0.1:8080")
	set.StringVar(&r.server, "server", server, "URL of the gateway, or its host:port (FARHAND_URL)")
	// The token is not the flag's default, or --help would print it.
	set.StringVar(&r.token, "token", "", "bearer token (FARHAND_TOKEN, or the file FARHAND_TOKEN_FILE)")
	r.token, r.environment = vars[envPrefix+"TOKEN"], vars
	r.trust = new(trust)
	set.StringVar(&r.trust.file, "ca", vars[envPrefix+"CA"],
		"PEM file of certificates to trust beside the system's authorities (FARHAND_CA)")
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
		about := c.Name
		if c.DeviceID != c.SessionID {
			about = strings.TrimSpace(about + " " + c.DeviceID)
		}
		if about != "" {
			fmt.Fprintf(&b, "  (%s)", about)
		}
	}
	if p.Code == registry.CodeSessionNotFound {
		b.WriteString("\n  farhand sessions lists the ids of connected devices; names are not accepted")
	}
	if p.Dispatched != "" {
		fmt.Fprintf(&b, "\n  reached the device: %s; call %s", p.Dispatched, p.CallID)
	}
	return b.String()
}

// bearer returns the token of the flag, else that of the environment.
func (r *remote) bearer() (string, error) {
	if r.token != r.environment[envPrefix+"TOKEN"] {
		return r.token, nil
	}
	return tokenOf(r.environment)
}

// tokenOf returns the token of an environment, which may name the token's file.
func tokenOf(environment map[string]string) (string, error) {
	return envconf.Secret(environment, envPrefix+"TOKEN")
}

// hasToken reports whether an environment has a token.
func hasToken(environment map[string]string) bool {
	return environment[envPrefix+"TOKEN"]+environment[envPrefix+"TOKEN"+envconf.FileSuffix] != ""
}

// base returns the gateway's URL. Without a scheme it is plain HTTP.
func (r *remote) base() string {
	server := strings.TrimSuffix(r.server, "/")
	if !strings.Contains(server, "://") {
		return "http://" + server
	}
	return server
}

// open sends a request with the gateway's token, and returns a successful response, whose body the caller must close.
func (r *remote) open(
	ctx context.Context, method, path string, query url.Values, body any, header ...string,
) (*http.Response, error) {
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
		reader, header = bytes.NewReader(b), append(header, "Content-Type", "application/json")
	}
	req, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, fmt.Errorf("--server must look like https://gateway.example.com: %w", err)
	}
	token, err := r.bearer()
	if err != nil {
		return nil, err
	}
	if token != "" {
		header = append(header, "Authorization", "Bearer "+token)
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	client, err := r.trust.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, r.noAnswer(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	b, err := readBody(resp)
	if err != nil {
		return nil, err
	}
	p := problem{Code: registry.Code(resp.Status), Detail: "the gateway gave no reason"}
	if json.Unmarshal(b, &p) != nil {
		p.Detail = "the answer is not from a Farhand gateway"
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		p.Detail = fmt.Sprintf("%s redirects to %q, which is not followed: if you trust that, give it as --server",
			r.base(), oneLine(to, shownLink))
	}
	p.Status = resp.StatusCode
	return nil, p
}

// noAnswer explains why a gateway did not answer.
func (r *remote) noAnswer(err error) error {
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the certificate of %s cannot be verified: %w\n  If you know it, or its authority, "+
			"give its PEM file with --ca (FARHAND_CA)", r.base(), certificate)
	}
	return fmt.Errorf("no answer from the gateway at %s (is it running? see --server): %w", r.base(),
		errors.Unwrap(err))
}

// events opens a stream of events, after the one with id last if that is not empty.
func (r *remote) events(
	ctx context.Context, method, path string, query url.Values, body any, last string,
) (*http.Response, error) {
	header := []string{"Accept", "text/event-stream"}
	if last != "" {
		header = append(header, "Last-Event-ID", last)
	}
	return r.open(ctx, method, path, query, body, header...)
}

// do sends a request and returns the body of a successful response.
func (r *remote) do(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	resp, err := r.open(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	return readBody(resp)
}

// maxBody is the longest answer of a gateway that is read whole, in bytes. Lists have pages, and results are shorter.
const maxBody = 64 << 20

// readBody reads and closes the body of a response.
func readBody(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("the gateway's response was cut off: %w", err)
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("the gateway's response is longer than %d MiB", maxBody>>20)
	}
	return b, nil
}

// call sends a request and discards the answer.
func (r *remote) call(ctx context.Context, method, path string, body any) error {
	_, err := r.do(ctx, method, path, nil, body)
	return err
}

// fetch sends a request and decodes the answer.
func fetch[T any](
	ctx context.Context, r remote, method, path string, query url.Values, body any,
) (answer T, err error) {
	raw, err := r.do(ctx, method, path, query, body)
	if err != nil {
		return answer, err
	}
	err = decodeAnswer(raw, &answer)
	return answer, err
}

func decodeAnswer(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("the answer is not from a Farhand gateway: %w", err)
	}
	return nil
}

// isAway reports whether an error means that no gateway answered, or none that can serve now. Commands that follow
// something then retry.
func isAway(err error) bool {
	if p, ok := errors.AsType[problem](err); ok {
		return p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
	}
	_, foreign := errors.AsType[*json.SyntaxError](err)
	return err != nil && !foreign
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
