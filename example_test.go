package farhand_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// quiet keeps the log out of the output of examples.
var quiet = farhand.WithLogger(slog.New(slog.DiscardHandler))

type greeting struct {
	Name string `json:"name" jsonschema:"who is greeted"`
}

func greet(_ context.Context, g greeting) (any, error) {
	if g.Name == "" {
		return nil, errors.New("nobody is there")
	}
	return "Hello, " + g.Name + ".", nil
}

// A gateway in a server of the program's own.
func ExampleNew() {
	ctx := context.Background()
	g, err := farhand.New(ctx, farhand.Config{}, farhand.WithToolFunc("greet", "Greet somebody.", greet), quiet)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	defer g.Close(ctx) // before the server: it ends what the server serves

	resp, err := http.Post(server.URL+"/api/tools/greet/call", "application/json",
		strings.NewReader(`{"args":{"name":"Ada"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, strings.Contains(string(body), `"output":"Hello, Ada."`))
	// Output: 200 OK true
}

// The schema of a tool's arguments is made from a struct.
func ExampleSchemaOf() {
	schema, err := farhand.SchemaOf[greeting]()
	fmt.Println(string(schema), err)
	// Output: {"type":"object","properties":{"name":{"type":"string","description":"who is greeted"}},"required":["name"],"additionalProperties":false} <nil>
}

// Callers are users of the program: each sees what is their tenant's, and their own sessions.
func ExampleWithAuthenticator() {
	users := map[string]auth.Identity{"key-of-ada": {Tenant: "acme", User: "ada"}}
	who := auth.AuthenticatorFunc(func(_ context.Context, r *http.Request, token string) (auth.Identity, error) {
		id, ok := users[token]
		if !ok || r.Header.Get("X-Blocked") != "" {
			return auth.Identity{}, registry.Errorf(registry.CodeUnauthenticated, "This key is not known.")
		}
		return id, nil
	})
	g, err := farhand.New(context.Background(), farhand.Config{}, farhand.WithAuthenticator(who), quiet)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close(context.Background())
	for _, token := range []string{"key-of-ada", "key-of-nobody"} {
		r := httptest.NewRequest(http.MethodGet, "/api/sessions", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		fmt.Println(token, w.Code)
	}
	// Output:
	// key-of-ada 200
	// key-of-nobody 401
}

// A hook decides before each call.
func ExampleWithHook() {
	noNight := agent.BeforeFunc("no-night-calls",
		func(_ context.Context, call agent.Invocation) (agent.Decision, error) {
			if call.Spec.Name == "greet" {
				return agent.Cancel("it is night"), nil
			}
			return agent.Pass(), nil
		})
	g, err := farhand.New(context.Background(), farhand.Config{}, farhand.WithHook(noNight),
		farhand.WithToolFunc("greet", "Greet somebody.", greet), quiet)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close(context.Background())
	r := httptest.NewRequest(http.MethodPost, "http://localhost/api/tools/greet/call",
		strings.NewReader(`{"args":{"name":"Ada"}}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "it is night"))
	// Output: 403 true
}
